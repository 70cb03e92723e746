"""Cases of cross_entropy.cu: loss, probabilities and the gradient of the logits."""

from collections.abc import Iterator

import numpy as np

from minidist import ops
from tests.cuda.cases.numbers import numbers, over, unset, wide
from tests.cuda.kernel_cases import TINY, U32, Case, Want


def softmax_errors(logits: np.ndarray) -> np.ndarray:
    """Return the relative error of a row's sum of exp, and of p: (rows, 1).

    A difference to the largest logit, at most D, is off by u D, which is a relative error of its
    exp. Online, a sum is scaled down up to once for each logit, and the differences add up to D.
    """
    largest = logits.max(-1, keepdims=True)
    distance = (largest - np.where(np.isinf(logits), largest, logits)).max(-1, keepdims=True)
    return (2 * distance + 8 * logits.shape[-1] + 16) * U32


def losses_of(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the loss of each row by the array version, which gives sums."""
    rows = range(len(labels))
    return np.array([float(ops.cross_entropy(logits[i], labels[i])[0]) for i in rows]).reshape(-1)


def cross_entropy_reference(logits, labels, losses, p, rows, vocabulary):
    (x,) = wide(logits)
    want_p, relative = ops.cross_entropy(x, labels)[1], softmax_errors(x)
    want = losses_of(x, labels)
    return {
        2: Want(want, relative[:, 0] + 4 * U32 * abs(want)),
        3: Want(want_p, relative * want_p + TINY),
    }


def cross_entropy_lse_reference(logits, labels, losses, lse, rows, vocabulary):
    (x,) = wide(logits)
    relative, want = softmax_errors(x)[:, 0], losses_of(x, labels)
    want_lse = np.logaddexp.reduce(x, axis=-1)
    return {
        2: Want(want, relative + 4 * U32 * abs(want)),
        3: Want(want_lse, relative + 4 * U32 * (abs(want_lse) + 8)),
    }


def cross_entropy_backward_reference(scale, p, labels, dlogits, rows, vocabulary):
    (p64,) = wide(p)
    want = ops.cross_entropy_backward(float(scale), p64, labels)
    return {3: Want(want, 3 * U32 * abs(scale) * (p64 + 1) + TINY)}


def cross_entropy_backward_lse_reference(scale, logits, lse, labels, dlogits, rows, vocabulary):
    distance = wide(logits)[0] - wide(lse)[0][:, None]
    p = np.exp(distance)
    want = ops.cross_entropy_backward(float(scale), p, labels)
    allowed = abs(scale) * ((abs(distance) + 8) * U32 * p + 2 * U32) + TINY
    return {4: Want(want, allowed)}


def total_reference(losses, loss, rows):
    (x,) = wide(losses)
    return {1: Want(x.sum(keepdims=True), (rows + 1) * U32 * abs(x).sum() + TINY)}


def labels_for(rows: int, vocabulary: int) -> np.ndarray:
    """Return labels of which some are to be ignored."""
    return np.random.default_rng(rows).integers(-1, vocabulary, rows)


def hard_logits() -> np.ndarray:
    """Return rows that overflow, that forbid words, that rise at each step, that are all alike."""
    x = numbers(5, 67, scale=3.0)
    x[0, 5], x[1, ::2], x[2], x[3] = 200.0, -np.inf, np.linspace(-60, 60, 67), -1e4
    return x


def cross_entropy_cases() -> Iterator[Case]:
    shapes = [(1, 1), (3, 5), (4, 64), (33, 37), (2, 300), (0, 7)]
    launches = [
        ("cross_entropy_row_per_thread", 48, lambda rows: over(rows, 48)),
        ("cross_entropy_three_readings", 64, lambda rows: over(rows, 1)),
        ("cross_entropy_three_readings", 40, lambda rows: 2),
        ("cross_entropy_online", 64, lambda rows: over(rows, 1)),
        ("cross_entropy_online", 40, lambda rows: 2),
        ("cross_entropy_lse", 96, lambda rows: 3),
    ]
    for kernel, block, grid in launches:
        lse = kernel.endswith("lse")
        reference = cross_entropy_lse_reference if lse else cross_entropy_reference
        for rows, vocabulary in shapes:
            yield Case(
                f"{kernel} {rows}x{vocabulary} by {block}",
                "cross_entropy.cu",
                kernel,
                (grid(rows),),
                (block,),
                lambda rows=rows, vocabulary=vocabulary, lse=lse: [
                    numbers(rows, vocabulary, scale=3.0), labels_for(rows, vocabulary),
                    unset(rows), unset(rows) if lse else unset(rows, vocabulary), rows, vocabulary,
                ],
                reference,
            )  # fmt: skip
        yield Case(
            f"{kernel} of hard logits by {block}",
            "cross_entropy.cu",
            kernel,
            (5,),
            (32,),
            lambda lse=lse: [
                hard_logits(), np.array([5, 1, 66, 0, -100]), unset(5),
                unset(5) if lse else unset(5, 67), 5, 67,
            ],
            reference,
        )  # fmt: skip
    for rows, vocabulary in shapes:
        yield from cross_entropy_backward_cases(rows, vocabulary)


def cross_entropy_backward_cases(rows: int, vocabulary: int) -> Iterator[Case]:
    scale = np.float32(0.3)

    def p():
        return ops.cross_entropy(numbers(rows, vocabulary), labels_for(rows, vocabulary))[1]

    def in_place():
        logits = numbers(rows, vocabulary)
        lse = np.logaddexp.reduce(logits.astype(np.float64), axis=-1).astype(np.float32)
        return [scale, logits, lse, labels_for(rows, vocabulary), logits, rows, vocabulary]

    yield Case(
        f"cross_entropy_backward {rows}x{vocabulary}",
        "cross_entropy.cu",
        "cross_entropy_backward",
        (over(rows, 2),),
        (40,),
        lambda: [
            scale, p(), labels_for(rows, vocabulary), unset(rows, vocabulary), rows, vocabulary,
        ],
        cross_entropy_backward_reference,
    )  # fmt: skip
    yield Case(
        f"cross_entropy_backward_lse over the logits {rows}x{vocabulary}",
        "cross_entropy.cu",
        "cross_entropy_backward_lse",
        (over(rows, 2),),
        (64,),
        in_place,
        cross_entropy_backward_lse_reference,
    )
    yield Case(
        f"cross_entropy_total of {rows * vocabulary} losses",
        "cross_entropy.cu",
        "cross_entropy_total",
        (1,),
        (50,),
        lambda: [numbers(rows * vocabulary), unset(1), rows * vocabulary],
        total_reference,
    )
