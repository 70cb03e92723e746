"""NVIDIA's compiler makes one instruction of what the kernels mean to load and store at once."""

import re

import pytest

from minidist.cuda import nvrtc
from minidist.errors import NoCompilerError
from tests.tiers import fast_and_slow

WIDE = [  # file, kernel, an instruction that must be there; ".global" is not always known
    ("elementwise.cu", "add_f32_vec", r"ld\.global\.v4\.f32"),
    ("elementwise.cu", "add_f32_vec", r"st\.global\.v4\.f32"),
    ("elementwise.cu", "add_f16_pairs", r"ld\.global\.(u32|v2\.u16)"),
    ("elementwise.cu", "add_bf16_pairs", r"st\.global\.(u32|v2\.u16)"),
    ("pack.cu", "pack_blocks_f32", r"ld(\.global)?\.v4\.f32"),
    ("pack.cu", "pack_blocks_bf16", r"st(\.global)?\.(v2\.u32|u64)"),
    ("pack.cu", "unpack_blocks_bf16", r"ld\.global\.(v2\.u32|u64)"),
    ("reduce.cu", "sum_last_block", r"ld\.global\.v4\.f32"),
    ("adamw.cu", "adamw_f32_vec", r"st\.global\.v4\.f32"),
    ("adamw.cu", "adamw_bf16_vec", r"ld\.global\.(v2\.u32|u64)"),
    ("adamw.cu", "adamw_bf16_vec", r"st\.global\.(v2\.u32|u64)"),
]


def listing(file: str, kernel: str) -> str:
    """Return the PTX of one kernel."""
    try:
        text = nvrtc.build(file, "sm_80", ptx=True).code.decode()
    except NoCompilerError as error:
        pytest.skip(str(error))
    start = text.index(f".entry {kernel}(")
    return text[start : text.index("\n}", start)]


@pytest.mark.parametrize(("file", "kernel", "instruction"), fast_and_slow(WIDE, 2))
def test_several_elements_go_in_one_instruction(file, kernel, instruction):
    assert re.search(instruction, listing(file, kernel))


def test_the_parts_of_other_blocks_are_not_read_from_a_cache():
    assert "ld.volatile.global.f32" in listing("reduce.cu", "sum_last_block")
