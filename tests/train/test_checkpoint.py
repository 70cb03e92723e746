"""Checkpoints of boxes move between ranks and stages; saving and loading is all or nothing."""

import os
import shutil
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minidist.comm import run
from minidist.errors import CheckpointError
from minidist.nn import Parameter, Shard
from minidist.parallel.mesh import Mesh
from minidist.parallel.zero import Zero
from minidist.testing.mutants import mutate
from minidist.train import checkpoint
from minidist.train.boxes import boxes, boxes_of, common
from minidist.train.checkpoint import MANIFEST, load_checkpoint, newest, save_checkpoint
from minidist.train.manifest import Manifest, Piece, read_manifest
from minidist.train.optimizer import AdamW
from tests.tiers import fast_and_slow

# --- boxes -------------------------------------------------------------------------------------


def check_boxes(shape, start, stop, cut=boxes):
    """Put together in order they are the range; there are at most 2 n - 1."""
    number = np.arange(int(np.prod(shape))).reshape(shape)
    found = list(cut(shape, start, stop))
    parts = [number[tuple(slice(a, b) for a, b in box)].ravel() for box in found]
    assert [int(i) for part in parts for i in part] == list(range(start, stop))
    assert len(found) <= max(1, 2 * len(shape) - 1)
    assert all(a < b for box in found for a, b in box)


@example([4, 5], 7, 17)
@example([2, 3, 4], 5, 19)
@example([], 0, 1)
@given(st.lists(st.integers(1, 4), max_size=4), st.integers(0, 300), st.integers(0, 300))
def test_a_range_is_a_few_boxes(shape, start, stop):
    size = int(np.prod(shape))
    start, stop = sorted((start % (size + 1), stop % (size + 1)))
    check_boxes(shape, start, stop)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("if first < whole:", "if first < whole - 1:"),
        ("if start % row:", "if False:"),
        ("stop - start < row", "False"),
    ],
)
def test_wrong_boxes_are_seen(old, new):
    broken = mutate(boxes, old, new)
    with pytest.raises((AssertionError, RecursionError, ValueError)):
        check_several(broken)


def check_several(cut):
    for case in [([4, 5], 7, 17), ([2, 3, 4], 5, 19), ([3, 4], 5, 6), ([5], 1, 4), ([3, 2], 0, 6)]:
        check_boxes(*case, cut)


def test_boxes_of_a_shard_stand_in_the_whole():
    p = Parameter("w", (6, 8), ((2, 4), (0, 8)))
    assert list(boxes_of(Shard(p, 3, 11))) == [((2, 3), (3, 8)), ((3, 4), (0, 3))]
    assert common(((0, 3), (1, 2)), ((2, 5), (0, 9))) == ((2, 3), (1, 2))
    assert common(((0, 3), (1, 2)), ((3, 5), (0, 9))) is None
    assert common((), ()) == ()


# --- there and back --------------------------------------------------------------------------


class Unit:
    def __init__(self, *own):
        self.own = own

    def parameters(self):
        return list(self.own)


def model(comm, stage, tp=1, seed=1, width=5):
    """Odd sizes, a tied table, frozen, empty and 0-d parameters; with tp, a split matrix."""
    mesh = Mesh(comm, tp=tp)
    i = mesh.index["tp"]
    split = Parameter("split", (4, 3), ((4 // tp * i, 4 // tp * (i + 1)), (0, 3)), 1.0, seed)
    tied = Parameter("tied", (3, width), init=1.0, seed=seed, copies=("tp",))
    rest = [
        Parameter("frozen", (2, 3, 2), init=1.0, seed=seed, copies=("tp",), trainable=False),
        Parameter("empty", (0, 5), init=1.0, seed=seed, copies=("tp",)),
        Parameter("scalar", (), init=1.0, seed=seed, copies=("tp",)),
    ]
    return Zero([Unit(tied, split), Unit(*rest, tied)], AdamW(), mesh, stage, dtype=np.float32)


def numbers(slot, shard):
    """The value of each element: a function of slot, name and place in the whole tensor."""
    p = shard.parameter
    place = p._place(shard.start, shard.stop)
    return (1000 * ("weights", "m", "v").index(slot) + 100 * len(p.name) + place).astype("f4")


def save(comm, folder, stage, tp=1, step=7, writer=save_checkpoint):
    sync = model(comm, stage, tp)
    for slot, shard, values in sync.kept():
        values[...] = numbers(slot, shard)
    return writer(comm, folder, sync, step, 16 * step, {"corpus": "x"})


def check_load(comm, folder, stage, tp=1, reader=load_checkpoint):
    sync = model(comm, stage, tp, seed=2)
    manifest = reader(comm, newest(folder), sync)
    assert (manifest.step, manifest.samples, manifest.about) == (7, 112, {"corpus": "x"})
    for slot, shard, values in sync.kept():
        assert np.array_equal(values, numbers(slot, shard)), (slot, shard)
    for bucket in sync.gathered():
        for p, view in bucket.layout.views(bucket.flat):
            want = numbers("weights", Shard(p, 0, p.size)).reshape(p.local)
            assert np.array_equal(view, want), p.name


MOVES = [
    ((3, 0, 1), (2, 3, 1)),
    ((5, 3, 1), (1, 0, 1)),
    ((1, 0, 1), (5, 2, 1)),
    ((4, 1, 2), (3, 3, 1)),
    ((2, 2, 1), (4, 3, 2)),
    ((4, 3, 2), (2, 0, 2)),
]
EVERY = [
    ((p, a, 1), (q, b, 1)) for p, q, a, b in product(range(1, 6), range(1, 6), range(4), range(4))
]


@pytest.mark.parametrize(("there", "back"), fast_and_slow([*MOVES, *EVERY], len(MOVES)))
def test_a_checkpoint_moves_between_ranks_stages_and_meshes(tmp_path, there, back):
    run(save, tmp_path, *there[1:], ranks=there[0])
    run(check_load, tmp_path, *back[1:], ranks=back[0])


@pytest.mark.parametrize(
    ("target", "old", "new"),
    [
        (checkpoint._take, "values[start:stop] =", "values[: stop - start] ="),
        (checkpoint.read_box, "inside(met, piece.box)", "inside(met, box)"),
        (checkpoint._take, "sync.refresh()", "pass"),
    ],
)
def test_a_wrong_load_is_seen(tmp_path, monkeypatch, target, old, new):
    run(save, tmp_path, 3, ranks=3)
    monkeypatch.setattr(checkpoint, target.__name__, mutate(target, old, new))
    with pytest.raises((AssertionError, ValueError, CheckpointError)):
        run(check_load, tmp_path, 1, ranks=2)


def test_the_manifest_is_readable_by_one_process_and_equal_states_are_equal_files(tmp_path):
    for name in "ab":
        run(save, tmp_path / name, 2, ranks=3)
    one, two = (newest(tmp_path / name) for name in "ab")
    assert sorted(p.name for p in one.iterdir()) == [
        "manifest.json", *(f"rank-0000{r}.safetensors" for r in range(3)),
    ]  # fmt: skip
    for path in one.iterdir():
        assert path.read_bytes() == (two / path.name).read_bytes()
    manifest = read_manifest(one / MANIFEST)
    assert manifest.ranks == 3
    assert {p.tensor for p in manifest.pieces} == {
        *(
            f"{slot}/{name}"
            for slot in ("weights", "m", "v")
            for name in ("tied", "split", "scalar")
        ),
        "weights/frozen",
    }


def test_a_rank_reads_what_it_keeps_and_hashes_its_share(tmp_path, monkeypatch):
    """torchtitan#1131: no rank reads the whole model. Elements that were read, by rank."""
    run(save, tmp_path, 3, ranks=4)
    real, read = checkpoint._read, []

    def counted(path, key, where):
        part = real(path, key, where)
        read.append(part.size)
        return part

    monkeypatch.setattr(checkpoint, "_read", counted)
    kept = run(load_and_count, newest(tmp_path), ranks=3)
    assert sum(read) == sum(kept)


def load_and_count(comm, path):
    sync = model(comm, 3)
    load_checkpoint(comm, path, sync)
    return sum(values.size for _, _, values in sync.kept())


# --- damage -----------------------------------------------------------------------------------


def damaged(tmp_path, name, data):
    path = newest(tmp_path) / name
    old = path.read_bytes()
    path.write_bytes(data(bytearray(old)))
    try:
        with pytest.raises(CheckpointError) as error:
            run(refused_everywhere, tmp_path, ranks=3)
        return str(error.value)
    finally:
        path.write_bytes(old)


def refused_everywhere(comm, folder):
    """All ranks raise the same, or this hangs; nothing of the model has changed."""
    sync = model(comm, 1)
    before = [values.tobytes() for _, _, values in sync.kept()]
    try:
        load_checkpoint(comm, newest(folder), sync)
    except CheckpointError as error:
        told = comm.gather_objects(str(error))
        same = before == [values.tobytes() for _, _, values in sync.kept()]
        if len(set(told)) > 1 or not same:
            pytest.fail(f"ranks were told {told}; the model is as before: {same}")
        raise


def flip(at):
    def change(data):
        data[at % len(data)] ^= 4
        return bytes(data)

    return change


@pytest.fixture(scope="module")
def saved_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    run(save, folder, 1, ranks=3)
    return folder


FILES = [MANIFEST, *(f"rank-0000{r}.safetensors" for r in range(3))]


@given(st.sampled_from(FILES), st.integers(0, 10**6))
@example("rank-00002.safetensors", 10**6 + 3)
@example(MANIFEST, 30)
def test_a_flipped_bit_in_any_file_is_named_on_all_ranks(saved_once, name, at):
    assert name in damaged(saved_once, name, flip(at))


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_short_or_empty_is_named(saved_once, name):
    for keep in (0, 1, -2):
        assert name in damaged(saved_once, name, lambda data, keep=keep: bytes(data[:keep]))


def test_a_load_that_does_not_look_is_seen(saved_once, monkeypatch):
    monkeypatch.setattr(checkpoint, "_verify", lambda path, digest: None)
    with pytest.raises(pytest.fail.Exception):
        damaged(saved_once, "rank-00001.safetensors", flip(-1))


def test_a_missing_file_and_one_of_another_save_are_named(tmp_path):
    run(save, tmp_path / "a", 1, ranks=2)
    run(save, tmp_path / "b", 1, 1, 8, ranks=2)
    path = newest(tmp_path / "a") / "rank-00001.safetensors"
    path.unlink()
    with pytest.raises(CheckpointError, match=r"cannot read .*rank-00001"):
        run(refused_everywhere, tmp_path / "a", ranks=3)
    shutil.copy(newest(tmp_path / "b") / "rank-00000.safetensors", path)
    with pytest.raises(CheckpointError, match=r"rank-00001.*checksum does not fit"):
        run(refused_everywhere, tmp_path / "a", ranks=1)


def test_another_model_is_refused(tmp_path):
    run(save, tmp_path, 0, ranks=2)

    def program(comm):
        load_checkpoint(comm, newest(tmp_path), model(comm, 0, width=6))

    with pytest.raises(CheckpointError, match=r"m/tied is \[3, 5\] float32, .* wants \[3, 6\]"):
        run(program, ranks=3)


def piece(box, shape=(4,)):
    return Piece("weights/w", shape, "float32", box, "f", "k")


@pytest.mark.parametrize(
    "held",
    [
        [((0, 3),)],
        [((0, 3),), ((2, 4),)],
        [((0, 2),), ((0, 2),)],
        [((0, 2),), ((2, 5),)],
    ],
)
def test_boxes_that_do_not_cover_a_tensor_once_are_refused(tmp_path, held):
    """pytorch#126595: saved pieces that cover half of each tensor."""
    manifest = Manifest(1, 1, 1, {}, {}, [piece(box) for box in held])
    with pytest.raises(CheckpointError, match="do not cover its shape"):
        manifest.check(tmp_path)
    Manifest(1, 1, 1, {}, {}, [piece(((0, 3),)), piece(((3, 4),))]).check(tmp_path)


# --- dying ------------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for a process that is gone."""


POINTS = ["Path.mkdir", "Path.open", "os.fsync", "Path.replace", "Path.rename", "shutil.rmtree"]


def save_and_die(folder, point, count, monkeypatch):
    """Save step 8 over step 7 and die before call number `count` of a function; the step left."""
    owner = {"Path": type(folder), "os": os, "shutil": shutil}[point.split(".")[0]]
    name, calls = point.split(".")[1], iter(range(1000))
    real = getattr(owner, name)

    def dying(*args, **options):
        if next(calls) == count:
            raise Killed
        return real(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dying)
        try:
            run(save, folder, 1, 1, 8, ranks=2)
        except Killed:
            return read_manifest(newest(folder) / MANIFEST).step
    return None


@pytest.mark.parametrize("point", POINTS)
def test_whenever_a_save_is_killed_there_is_a_whole_checkpoint(tmp_path, point, monkeypatch):
    """pytorch-lightning#688. And the next save clears away what was left."""
    left = []
    for count in range(20):
        folder = tmp_path / str(count)
        run(save, folder, 1, ranks=2)
        step = save_and_die(folder, point, count, monkeypatch)
        if step is None:
            break
        left.append(step)
        run(save, folder, 1, 1, 9, ranks=2)
        assert [p.name for p in folder.iterdir()] == ["step-00000009"]
    assert left
    assert left == sorted(left)
    assert set(left) <= {7, 8}


def test_removing_the_old_one_first_is_seen(tmp_path, monkeypatch):
    early = mutate(
        checkpoint._commit,
        "replace_file(new / MANIFEST, manifest.dump())",
        "[shutil.rmtree(p) for p in folder.glob('step-*') if p.suffix != NEW]; "
        "replace_file(new / MANIFEST, manifest.dump())",
    )
    run(save, tmp_path, 1, ranks=2)
    monkeypatch.setattr(checkpoint, "_commit", early)
    with pytest.raises((CheckpointError, TypeError)):
        save_and_die(tmp_path, "Path.rename", 0, monkeypatch)


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_cannot_write_is_an_error_on_all_and_nothing_is_lost(
    tmp_path, rank, monkeypatch
):
    run(save, tmp_path, 1, ranks=3)
    real = checkpoint.replace_file

    def full(path, data):
        if path.name == f"rank-0000{rank}.safetensors":
            raise OSError(28, "No space left on device")
        real(path, data)

    def program(comm):
        with pytest.raises(CheckpointError, match=f"rank-0000{rank}.*No space left"):
            save(comm, tmp_path, 1, step=8)
        return "refused"

    monkeypatch.setattr(checkpoint, "replace_file", full)
    assert run(program, ranks=3) == ["refused"] * 3
    monkeypatch.undo()
    run(check_load, tmp_path, 3, ranks=2)


def test_half_types_keep_their_masters_and_frozen_bits(tmp_path):
    from minidist.ops.half import named

    def make(comm, stage, seed):
        own = [
            Parameter("w", (5, 3), init=1.0, seed=seed),
            Parameter("f", (7,), init=1.0, seed=seed, trainable=False),
        ]
        return Zero([Unit(*own)], AdamW(), Mesh(comm), stage, dtype=named("bfloat16"))

    def write(comm):
        sync = make(comm, 2, 1)
        save_checkpoint(comm, tmp_path, sync, 1, 1, {})
        return {p.name: p.data.tobytes() for b in sync.gathered() for p in b.layout.parameters}

    def read(comm):
        sync = make(comm, 3, 2)
        load_checkpoint(comm, newest(tmp_path), sync)
        return {p.name: p.data.tobytes() for b in sync.gathered() for p in b.layout.parameters}

    (first, *_), (second, *_) = run(write, ranks=3), run(read, ranks=2)
    assert first == second
