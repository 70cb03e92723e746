"""Warp operations of the emulator against a reference that goes lane by lane."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.cuda.glue import BAD_MASK, DEADLOCK, FINISHED, Kernels
from tests.cuda.test_runtime import ORDERS
from tests.tiers import fast_and_slow

pytestmark = pytest.mark.kernel

WIDTHS = [1, 2, 4, 8, 16, 32]
SHUFFLES = ["idx", "up", "down", "xor"]
TYPES = {"int": "i4", "unsigned long long": "u8", "float": "f4", "double": "f8", "short": "i2"}

# One kernel for each shuffle and type: every width and every distance in turn.
SHUFFLE = """
extern "C" __global__ void {name}(T* out, const T* x, int distances) {{
    int t = threadIdx.x, n = blockDim.x, at = 0;
    for (int width = 1; width <= 32; width *= 2)
        for (int d = 0; d < distances; d++, at++)
            out[at * n + t] = {call}(0xffffffffu, x[t], d, width);
}}
"""


def source(kind: str, lane: int, distance: int, width: int) -> int:
    """Return the lane that a lane reads from, as CUDA's programming guide has it."""
    first = lane // width * width
    if kind == "idx":
        return first + distance % width
    if kind == "up":
        return lane - distance if lane - distance >= first else lane
    if kind == "down":
        return lane + distance if lane + distance < first + width else lane
    return lane ^ distance if lane ^ distance < first + width else lane


@pytest.mark.parametrize("kind", SHUFFLES)
@pytest.mark.parametrize("kind_of_value", fast_and_slow(TYPES, 1))
def test_shuffles(kind: str, kind_of_value: str) -> None:
    call = "__shfl_sync" if kind == "idx" else f"__shfl_{kind}_sync"
    text = SHUFFLE.format(name="shuffle", call=call)
    kernels = Kernels(f"typedef {kind_of_value} T;\n{text}")
    distances = 32 if kind == "xor" else 34  # beyond 31: the last lanes keep their own
    x = (np.arange(96) * 7 + 3).astype(TYPES[kind_of_value])
    expected = [
        [x[lane // 32 * 32 + source(kind, lane % 32, d, width)] for lane in range(96)]
        for width in WIDTHS
        for d in range(distances)
    ]
    for order, seed in ORDERS:
        out = np.zeros((len(WIDTHS) * distances, 96), x.dtype)
        args = [out, x, np.int32(distances)]
        done = kernels.run("shuffle", [1], [96], args, order=order, seed=seed)
        assert (done.kind, done.text) == (FINISHED, b"")
        assert np.array_equal(out, expected)


MASKS = """
// The lanes of each mask talk among themselves, all groups of a warp at the same time.
extern "C" __global__ void groups(int* out, const unsigned* mask_of, const int* partner,
                                  int rounds) {
    int t = threadIdx.x, v = t;
    unsigned mask = mask_of[t];
    for (int r = 0; r < rounds; r++) v = __shfl_sync(mask, v + r, partner[t]);
    out[t] = v;
}
extern "C" __global__ void votes(unsigned* out, const unsigned* mask_of, const int* x) {
    int t = threadIdx.x, n = blockDim.x, same;
    unsigned mask = mask_of[t];
    out[t] = __ballot_sync(mask, x[t] & 1);
    out[n + t] = __any_sync(mask, x[t] > 5);
    out[2 * n + t] = __all_sync(mask, x[t] > 0);
    out[3 * n + t] = __match_any_sync(mask, x[t] % 3);
    out[4 * n + t] = __match_all_sync(mask, x[t] / 8, &same);
    out[5 * n + t] = same;
    out[6 * n + t] = __reduce_add_sync(mask, x[t]);
    out[7 * n + t] = __reduce_min_sync(mask, x[t]);
    out[8 * n + t] = __reduce_max_sync(mask, x[t]);
    out[9 * n + t] = __reduce_and_sync(mask, (unsigned)x[t]);
    out[10 * n + t] = __reduce_or_sync(mask, (unsigned)x[t]);
    out[11 * n + t] = __reduce_xor_sync(mask, (unsigned)x[t]);
    __syncwarp(mask);
}
extern "C" __global__ void tree(float* out, const float* x) {
    __shared__ float s[32];
    int t = threadIdx.x;
    s[t] = x[t];
    for (int half = 16; half; half /= 2) {
        __syncwarp();
        float v = t < half ? s[t + half] : 0;
        __syncwarp();
        s[t] += v;
    }
    __syncwarp();
    out[t] = s[0];
}
extern "C" __global__ void many_masks(int* out) {
    int t = threadIdx.x, sum = 0;
    for (int partner = 0; partner < 32; partner++) {
        unsigned mask = 1u << t | 1u << (t ^ partner);
        sum += __shfl_sync(mask, t, t ^ partner);
        sum += __shfl_xor_sync(0xffffffffu, t, partner);
    }
    out[t] = sum;
}
extern "C" __global__ void early_return(int* out, int n) {
    int t = threadIdx.x;
    if (t >= n) return;
    __syncwarp();
    out[t] = __ballot_sync(0xffffffffu, 1);
}
"""


@pytest.fixture(scope="module")
def masks() -> Kernels:
    return Kernels(MASKS)


def parts(assignment: Callable[[int], int], threads: int) -> tuple[np.ndarray, list[list[int]]]:
    """Return each thread's mask and the threads of its group."""
    mates = [
        [
            u
            for u in range(threads)
            if u // 32 == t // 32 and assignment(u % 32) == assignment(t % 32)
        ]
        for t in range(threads)
    ]
    return np.array([sum(1 << u % 32 for u in group) for group in mates], "u4"), mates


ASSIGNMENTS: dict[str, Callable[[int], int]] = {
    "all": lambda lane: 0,
    "halves": lambda lane: lane // 16,
    "odd and even": lambda lane: lane % 2,
    "thirds": lambda lane: lane % 3,
    "ragged": lambda lane: lane * lane % 7,
    "alone": lambda lane: lane,
}


@pytest.mark.parametrize("threads", [32, 64, 45])
@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_groups_of_lanes(masks: Kernels, name: str, threads: int) -> None:
    mask_of, mates = parts(ASSIGNMENTS[name], threads)
    partner = [mates[t][(mates[t].index(t) + 1) % len(mates[t])] for t in range(threads)]
    v = list(range(threads))
    for r in range(5):
        v = [v[partner[t]] + r for t in range(threads)]
    lanes = np.array([p % 32 for p in partner], "i4")
    for order, seed in ORDERS:
        out = np.zeros(threads, "i4")
        args = [out, mask_of, lanes, np.int32(5)]
        done = masks.run("groups", [1], [threads], args, order=order, seed=seed)
        assert (done.kind, done.text) == (FINISHED, b"")
        assert out.tolist() == v


@pytest.mark.parametrize("threads", [32, 64, 45])
@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_votes_matches_and_reductions(masks: Kernels, name: str, threads: int) -> None:
    mask_of, mates = parts(ASSIGNMENTS[name], threads)
    x = (np.arange(threads) * 5 % 17 + 1).astype("i4")

    def expected(t: int) -> list[int]:
        mine = {u: int(x[u]) for u in mates[t]}
        lanes = lambda chosen: sum(1 << u % 32 for u in mine if chosen(mine[u]))  # noqa: E731
        same = all(value // 8 == x[t] // 8 for value in mine.values())
        values = list(mine.values())
        return [
            lanes(lambda value: value & 1),
            any(value > 5 for value in values),
            all(value > 0 for value in values),
            lanes(lambda value: value % 3 == x[t] % 3),
            int(mask_of[t]) if same else 0,
            same,
            sum(values),
            min(values),
            max(values),
            int(np.bitwise_and.reduce(values)),
            int(np.bitwise_or.reduce(values)),
            int(np.bitwise_xor.reduce(values)),
        ]

    reference = np.array([expected(t) for t in range(threads)], "u4").T
    for order, seed in ORDERS:
        out = np.zeros((12, threads), "u4")
        done = masks.run("votes", [1], [threads], [out, mask_of, x], order=order, seed=seed)
        assert (done.kind, done.text) == (FINISHED, b"")
        assert np.array_equal(out, reference)


def test_warp_synchronous_tree_and_many_masks(masks: Kernels) -> None:
    x = np.arange(32, dtype="f4") ** 2
    for order, seed in ORDERS:
        out, sums = np.zeros(32, "f4"), np.zeros(32, "i4")
        assert masks.run("tree", [1], [32], [out, x], order=order, seed=seed).kind == FINISHED
        assert np.all(out == x.sum())
        done = masks.run("many_masks", [1], [32], [sums], order=order, seed=seed)
        assert (done.kind, done.text) == (FINISHED, b"")
        assert np.all(sums == 2 * 496)


def test_lanes_that_have_left_need_not_come(masks: Kernels) -> None:
    for order, seed in ORDERS:
        out = np.zeros(32, "u4")
        done = masks.run("early_return", [1], [32], [out, np.int32(20)], order=order, seed=seed)
        assert (done.kind, done.text) == (FINISHED, b"")
        assert out.tolist() == [2**20 - 1] * 20 + [0] * 12


WRONG = """
extern "C" __global__ void not_in_mask(int* out) {
    out[threadIdx.x] = __ballot_sync(0x0000ffffu, 1);
}
extern "C" __global__ void reads_beyond_mask(int* out) {
    int t = threadIdx.x;
    if (t < 16) out[t] = __shfl_sync(0x0000ffffu, t, t + 1);
}
extern "C" __global__ void reads_no_lane(int* out) {
    out[threadIdx.x] = __shfl_down_sync(0xffffffffu, 1, 1);
}
extern "C" __global__ void reads_who_left(int* out) {
    int t = threadIdx.x;
    if (t < 16) out[t] = __shfl_down_sync(0xffffffffu, t, 1);
}
extern "C" __global__ void width(int* out) { out[threadIdx.x] = __shfl_sync(~0u, 1, 0, 12); }
extern "C" __global__ void missing(int* out) {
    int t = threadIdx.x;
    if (t < 16) out[t] = __shfl_xor_sync(0xffffffffu, t, 1);
    __syncthreads();
}
"""


@pytest.mark.parametrize(
    ("kernel", "threads", "kind", "words"),
    [
        ("not_in_mask", 32, BAD_MASK, ["not in the mask", "0x0000ffff", "kernel.cu:3"]),
        (
            "reads_beyond_mask",
            32,
            BAD_MASK,
            ["reads a lane that is not in the mask", "kernel.cu:7"],
        ),
        ("reads_no_lane", 20, BAD_MASK, ["does not exist or has left", "kernel.cu:10"]),
        ("reads_who_left", 32, BAD_MASK, ["does not exist or has left", "kernel.cu:14"]),
        ("width", 32, BAD_MASK, ["width of a shuffle", "kernel.cu:16"]),
        (
            "missing",
            32,
            DEADLOCK,
            [
                "16 threads, the first is (0,0,0): wait in a warp operation with mask 0xffffffff "
                "at kernel.cu:19 for lanes 0xffff0000",
                "16 threads, the first is (16,0,0): wait in __syncthreads at kernel.cu:20",
            ],
        ),
    ],
)
def test_wrong_masks(kernel: str, threads: int, kind: int, words: list[str]) -> None:
    kernels = Kernels(WRONG)
    for order, seed in ORDERS:
        out = np.zeros(32, "i4")
        done = kernels.run(kernel, [1], [threads], [out], order=order, seed=seed)
        text = done.text.decode()
        assert done.kind == kind, text
        for word in words if order == 0 else words[-1:] if kind == BAD_MASK else []:
            assert word in text


def test_activemask_is_refused() -> None:
    text = 'extern "C" __global__ void f(unsigned* out) { *out = __activemask(); }'
    with pytest.raises(AssertionError, match="happen to run together"):
        Kernels(text)
