"""Operations by kernels are the operations by array code: each of them, and a whole training step.

The kernels themselves are proved in tests/cuda. Here it is asked whether the right one is launched
with the right arguments, and that one is launched at all.
"""

import ml_dtypes
import numpy as np
import pytest

from minidist import ops
from minidist.comm import run
from minidist.ops import kernels
from minidist.ops.reduce import combine, sum_of_squares
from minidist.parallel.mesh import Mesh
from minidist.parallel.zero import Zero
from minidist.testing.mutants import mutate
from minidist.train.optimizer import SGD, AdamW
from minidist.train.step import Step
from tests.train.plain import Case, ToyCorpus

pytestmark = pytest.mark.kernel
U = 2.0**-24  # half a unit in the last place: the error of one rounding in float32


@pytest.fixture
def launched(monkeypatch):
    """The names of the kernels that have been launched, in order."""
    names, kernel = [], kernels.kernel

    def noted(file, name):
        names.append(name)
        return kernel(file, name)

    monkeypatch.setattr(kernels, "kernel", noted)
    return names


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


X, DY, WEIGHT = numbers(3, 5, 24), numbers(3, 5, 24, seed=1), numbers(24, seed=2)
LABELS = np.array([[0, 23, -1, 5, 7], [2, 2, 2, -1, 0], [9, 1, 4, 4, 20]])
P = ops.cross_entropy(X, LABELS)[1]
R = ops.rms_norm(X, WEIGHT, 1e-5)[1]
HEADS = numbers(2, 5, 3, 8)
ANGLES = ops.rope_angles(np.arange(4, 9), 8, 1e4, np.float32)
Q, K, V = numbers(2, 5, 2, 3, 8), numbers(2, 6, 2, 8, seed=1), numbers(2, 6, 2, 8, seed=2)
PLACES = np.arange(1, 6), np.arange(6)
DROP = (0.3, (7, 3, "blocks.0.drop"), np.array([4, 9, 2**40]), np.arange(5))


def in_place(op, *arrays):
    """The arrays after an operation that changes them."""
    copies = [x.copy() for x in arrays]
    op(*copies)
    return copies


def adamw(x, g, m, v):
    ops.adamw(x, g, m, v, 1e-3, 0.9, 0.95, 1e-8, 0.1, 3)


CALLS = {
    # what is called, and the kernels that it is made of
    "rms_norm": (lambda: ops.rms_norm(X, WEIGHT, 1e-5), ["rms_norm_row_per_warp"]),
    "rms_norm_backward": (
        lambda: ops.rms_norm_backward(DY, X, WEIGHT, R),
        ["rms_norm_backward_dx", "rms_norm_backward_partial", "rms_norm_backward_dweight"],
    ),
    "cross_entropy": (
        lambda: ops.cross_entropy(X, LABELS),
        ["cross_entropy_online", "cross_entropy_total"],
    ),
    "cross_entropy_backward": (
        lambda: [ops.cross_entropy_backward(0.125, P, LABELS)],
        ["cross_entropy_backward"],
    ),
    "swiglu": (lambda: [ops.swiglu(X, DY)], ["swiglu_four_f32"]),
    "swiglu_backward": (
        lambda: ops.swiglu_backward(X[::-1], X, DY),
        ["swiglu_backward_four_f32"],
    ),
    "rope": (lambda: [ops.rope(HEADS, *ANGLES)], ["rope_thread_per_pair"]),
    "rope_backward": (lambda: [ops.rope_backward(HEADS, *ANGLES)], ["rope_thread_per_pair"]),
    "attention": (lambda: ops.attention(Q, K, V, *PLACES), ["attention_tiled_f32"]),
    "dropout": (lambda: [ops.dropout(X, *DROP)[0]], ["dropout_block_per_row"]),
    "dropout_backward": (
        lambda: [ops.dropout_backward(DY, 0.3, ops.dropout(X, *DROP)[1])],
        ["dropout_block_per_row"] * 2,
    ),
    "adamw": (
        lambda: in_place(adamw, *(numbers(1001, seed=i) ** (1 + i // 3) for i in range(4))),
        ["adamw_f32_vec"],
    ),
    "sum_of_squares": (lambda: [sum_of_squares(numbers(3000))], ["sum_squares"]),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_operation_by_kernels(name, launched, monkeypatch):
    """As by array code, up to the roundings of 64 terms: the longest sum here has fewer."""
    call, names = CALLS[name]
    want = call()
    assert launched == [], "without the variable NumPy arrays stay with NumPy"
    monkeypatch.setenv("MINIDIST_EMULATE", "1")
    got = call()
    assert launched == names
    for g, w in zip(got, want, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        finite = np.isfinite(w)
        assert np.array_equal(g[~finite], w[~finite])
        np.testing.assert_allclose(g[finite], w[finite], rtol=64 * U, atol=64 * U)


@pytest.mark.parametrize("op", ["sum", "max"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_the_combination_of_two_pieces_has_the_same_bits(op, dtype, launched, monkeypatch):
    a, b = numbers(1001).astype(dtype), numbers(1001, seed=1).astype(dtype)
    for shift in (0, 1):  # unaligned, too; and in place
        want = np.empty_like(a[shift:])
        combine(op, a[shift:], b[shift:], want)
        monkeypatch.setenv("MINIDIST_EMULATE", "1")
        got = a[shift:].copy()
        combine(op, got, b[shift:], got)
        monkeypatch.delenv("MINIDIST_EMULATE")
        assert got.tobytes() == want.tobytes()
    assert len(launched) == 2


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_arrays_take_the_float32_kernels(dtype, launched, monkeypatch):
    x, weight = X.astype(dtype), WEIGHT.astype(dtype)
    monkeypatch.setenv("MINIDIST_EMULATE", "1")
    y, r = ops.rms_norm(x, weight, 1e-5)
    assert (y.dtype, r.dtype, launched) == (dtype, np.float32, ["rms_norm_row_per_warp"])
    want, _ = ops.rms_norm(x.astype(np.float32), weight.astype(np.float32), 1e-5)
    assert y.tobytes() == want.astype(dtype).tobytes()


def test_what_the_kernels_cannot_do_is_left_to_the_array_code(launched, monkeypatch):
    monkeypatch.setenv("MINIDIST_EMULATE", "1")
    ops.rms_norm(X.astype(np.float64), WEIGHT.astype(np.float64), 1e-5)
    ops.swiglu(X[:0], X[:0])
    combine("min", X, DY, np.empty_like(X))
    combine("sum", np.ones(3, np.int64), np.ones(3, np.int64), np.empty(3, np.int64))
    large = [numbers(1, 2, 1, 1, 160), *[numbers(1, 2, 1, 160)] * 2, *[np.arange(2)] * 2]
    ops.attention(*large)
    monkeypatch.setenv("MINIDIST_KERNELS", "0")
    ops.swiglu(X, DY)
    assert launched == []


SHAPES = {
    # what the kernels would read beyond, or leave out: array code broadcasts these, or refuses them
    "swiglu_backward": lambda: ops.swiglu_backward(DY, X[..., :23].copy(), X[..., :23].copy()),
    "rms_norm, a longer weight": lambda: ops.rms_norm(X, numbers(25), 1e-5),
    "rms_norm, one weight": lambda: ops.rms_norm(X, numbers(1), 1e-5),
    "rms_norm, a weight a row": lambda: ops.rms_norm(X, numbers(5, 24), 1e-5),
    "rms_norm, eps": lambda: ops.rms_norm(X, WEIGHT, np.float64(1e-5)),
    "labels of another shape": lambda: ops.cross_entropy(X, LABELS[:, :4]),
    "labels that are floats": lambda: ops.cross_entropy(X, LABELS * 1.0),
    "rope of one position": lambda: [ops.rope(HEADS, ANGLES[0][:1], ANGLES[1][:1])],
    "rope of other angles a head": lambda: [ops.rope(HEADS, *(np.repeat(a, 3, 1) for a in ANGLES))],
    "combine": lambda: in_place(lambda out: combine("sum", X, WEIGHT, out), X * 0),
    "combine, shorter": lambda: in_place(lambda out: combine("sum", X, DY, out), X[:1]),
    "attention, one sample of keys": lambda: ops.attention(Q, K[:1], V[:1], *PLACES),
    "dropout, one position": lambda: [ops.dropout(X, 0.3, (1,), DROP[2], np.arange(1))[0]],
    "adamw, every second": lambda: in_place(
        lambda *every: adamw(*(x[::2] for x in every)), *(numbers(50) ** 2 for _ in range(4))
    ),
}


def outcome(call):
    """The arrays of a call, or the kind of its exception."""
    try:
        return [np.asarray(x) for x in call()]
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_that_no_kernel_reads_are_left_to_the_array_code(name, monkeypatch):
    want = outcome(SHAPES[name])
    monkeypatch.setenv("MINIDIST_EMULATE", "1")
    got = outcome(SHAPES[name])
    if isinstance(want, type):
        assert got is want
        return
    for g, w in zip(got, want, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        np.testing.assert_allclose(g, w, rtol=64 * U, atol=64 * U)


def train(comm, case, rule):
    """Two steps in float32, on this rank: gradients and parameters."""
    corpus = ToyCorpus(case.length, case.ignored)
    units = case.units(corpus.labels)
    sync = Zero(units, rule(), Mesh(comm), dtype=np.float32)
    how = {"batch": case.batch, "learning_rate": lambda step: case.lr}
    step = Step(sync, corpus, clip=case.clip, **how)
    norms = [step(number).norm for number in range(2)]
    grads = {p.name: p.grad.copy() for p in sync.parameters() if p.trainable}
    return norms, grads, {p.name: p.data.copy() for p in sync.parameters()}


def check_step(rule, monkeypatch):
    """By kernels on two ranks as by NumPy on two ranks.

    The longest path of a number through two steps is through 2 x 3 passes of 2 blocks of some 8
    operations, which add up 32 terms at most each: 3,000 roundings. They hardly ever all go the
    same way; a wrong factor, bound or place is off by much more than 3,000 U = 0.0002.
    """
    case = Case(batch=4, dropout=0.3, clip=0.3, length=4, ignored=0.3)
    want = run(train, case, rule, ranks=2)
    monkeypatch.setenv("MINIDIST_EMULATE", "1")
    got = run(train, case, rule, ranks=2)
    for rank in range(2):
        np.testing.assert_allclose(got[rank][0], want[rank][0], rtol=3000 * U)
        for mine, theirs in zip(got[rank][1:], want[rank][1:], strict=True):
            assert mine.keys() == theirs.keys()
            for name, array in theirs.items():
                allowed = 3000 * U * max(abs(array).max(), 1e-3)
                np.testing.assert_allclose(mine[name], array, rtol=0, atol=allowed, err_msg=name)
    for name, array in got[0][2].items():
        assert array.tobytes() == got[1][2][name].tobytes(), "ranks differ"


@pytest.mark.parametrize("rule", [lambda: SGD(0.1), lambda: AdamW(eps=1e-3)], ids=["sgd", "adamw"])
def test_a_training_step_on_two_ranks(rule, launched, monkeypatch):
    check_step(rule, monkeypatch)
    every = {n for _, names in CALLS.values() for n in names} - {"adamw_f32_vec"}
    missing = (every | {"add_f32_vec"}) - set(launched)
    assert missing == set()


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("dropout", "scale, batch", "1.0, batch"),
        ("rms_norm", "eps, count", "eps + 1.0, count"),
        ("rope", "1.0, x.size", "-1.0, x.size"),
        ("cross_entropy_backward", "(scale,", "(1.0,"),
    ],
)
def test_wrong_arguments_of_a_kernel_are_found(name, old, new, monkeypatch):
    monkeypatch.setattr(kernels, name, mutate(getattr(kernels, name), old, new))
    with pytest.raises(AssertionError):
        check_step(lambda: SGD(0.1), monkeypatch)
