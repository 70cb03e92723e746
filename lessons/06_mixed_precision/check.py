"""The laws of lesson 06, in the order of its blanks; a test is about the blank in its name.

From 06.3 on your functions are methods of a training step whose gradient is known beforehand, see
minidist/testing/scaled.py. All its numbers are such that only what should be rounded is.
"""

from itertools import pairwise, product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from minidist.errors import DivergedError
from minidist.learn.laws import LARGER, World, compare, run_all
from minidist.ops.half import named
from minidist.testing import textbook
from minidist.testing.rows import compare_rows
from minidist.testing.scaled import Told, steps, weights
from minidist.train.optimizer import SGD, AdamW
from minidist.train.precision import LossScale

FEW = (1, 2, 3, 4)
BIG = 2.0**24


# --- 06.1 -----------------------------------------------------------------------------------------

ROUNDED = (
    "a number in a half type is rounded each time that it is stored, and an update below half a "
    "step is lost. A float32 master keeps the update: its rounded copy is float32's sum, rounded "
    "once."
)


def by_fractions(name, times, step):
    """(alone, with a master) by rounding to whole steps; for numbers from 1 to below 2."""
    bits = {"bfloat16": 7, "float16": 10, "float32": 23}[name]

    def rounded(x, bits):
        return round(x * 2**bits) / 2**bits  # ties go to the even neighbour

    alone, master = 1.0, 1.0
    for _ in range(times):
        alone, master = rounded(alone + step, bits), rounded(master + step, 23)
    return alone, rounded(master, bits)


def test_stalled(exercise):
    """06.1  a half number stays where it is, and one with a master moves."""
    steps = [2.0**-7, 2.0**-8, 2.0**-9, 3 * 2.0**-10, 2.0**-12]
    for times, name, step in product((0, 1, 2, 3, 40), ("bfloat16", "float16", "float32"), steps):
        want = by_fractions(name, times, step)
        got = exercise.stalled(named(name), times, step)
        world = f"{name}, {times} times 2**{np.log2(step):.4g}"
        compare_rows(ROUNDED, world, [*zip(("alone", "with a master"), want, got, strict=True)])
    want = (1.0, 2.0)
    got = exercise.stalled(named("bfloat16"))
    world = "bfloat16, 1000 times 0.001"
    compare_rows(ROUNDED, world, [*zip(("alone", "with a master"), want, got, strict=True)])


# --- 06.2 -----------------------------------------------------------------------------------------

TEXTBOOK = (
    "m and v are running means of the gradient and of its square; both are divided by "
    "1 - beta**t, since they started at 0. The decay shrinks the weight and enters neither."
)
ANY_CUT = "an optimiser goes element by element: any cut into pieces gives the same bits."
KEEPS_TYPE = "masters and moments are float32 arrays that are changed in place, and stay float32."


def digits(x):
    return np.array2string(np.asarray(x), precision=5, suppress_small=False)


CASES = {
    "no decay": (0.1, 0.9, 0.99, 1e-8, 0.0),
    "eps 0.5": (0.1, 0.9, 0.99, 0.5, 0.0),
    "weight decay 0.5": (0.1, 0.9, 0.99, 1e-8, 0.5),
    "weight decay 0.5 without a gradient": (0.1, 0.9, 0.99, 1e-8, 0.5),
}


def test_adamw(exercise):
    """06.2  moments, their correction and the decay are those of the paper."""
    x = np.array([1.0, -2.0])
    for name, (lr, *betas, eps, decay) in CASES.items():
        gradients = 0 if "without" in name else np.array([[4.0, 1.0], [4.0, -1.0], [0.5, 1.0]])
        gradients = gradients + np.zeros((3, 2))
        want = textbook.adamw(x, gradients, lr, *betas, eps, decay)
        data, m, v = x.copy(), np.zeros(2), np.zeros(2)
        for t, (g, right) in enumerate(zip(gradients, want, strict=True), 1):
            exercise.adamw(data, g.copy(), m, v, lr, *betas, eps, decay, t)
            of = "0" if "without" in name else "4 4 0.5 and 1 -1 1"
            rows = zip(("m", "v", "data"), right, (m, v, data), strict=True)
            shown = [(what, digits(a), off(a, b)) for what, a, b in rows]
            compare_rows(TEXTBOOK, f"after step {t} of gradients {of}, {name}", shown)


def off(want, got):
    """What was found, in the digits of `want` if it is as good as that."""
    if np.allclose(want, got, rtol=1e-12, atol=1e-12):
        return digits(want)
    return f"{digits(got)}, off by {abs(want - got).max():.2g}"


@LARGER
@given(st.integers(0, 9), st.lists(st.integers(0, 9), max_size=3), st.integers(1, 1000))
def test_adamw_in_pieces(exercise, n, cuts, t):
    """06.2  ... in float32, in place, and in any pieces."""
    rng = np.random.default_rng(n)
    start = [rng.normal(size=n).astype(np.float32) for _ in range(3)]
    start.append(abs(rng.normal(size=n)).astype(np.float32))
    ends = [0, *sorted(min(c, n) for c in cuts), n]
    results = []
    for pieces in ([0, n], ends):
        arrays = [a.copy() for a in start]
        for a, b in pairwise(pieces):
            data, grad, m, v = (x[a:b] for x in arrays)
            exercise.adamw(data, grad, m, v, np.float64(0.1), 0.9, 0.99, 1e-8, 0.1, t)
        results.append(arrays)
    right = [np.dtype(np.float32)] * 4
    types = [*zip(("data", "grad", "m", "v"), right, [a.dtype for a in results[0]], strict=True)]
    compare_rows(KEEPS_TYPE, f"{n} elements", types)
    rows = zip(("data", "grad", "m", "v"), *results, strict=True)
    same = [(what, "the same bits", "the same bits" if a.tobytes() == b.tobytes() else digits(b))
            for what, a, b in rows]  # fmt: skip
    compare_rows(ANY_CUT, f"{n} elements, step {t}, cut at {ends}", same)


# --- 06.3 -----------------------------------------------------------------------------------------

SCALES = (
    "a bad step halves the scale, `every` good ones in a row since it last changed double it; it "
    "never leaves 1 to 2**24. A bad step at scale 1 is a DivergedError."
)


def check_scales(update_scale, verdicts, every, start):
    """Compare the scales after each step with those of the rule."""
    scaler, rows = LossScale(start, every), []
    for i, want in enumerate(textbook.loss_scales(verdicts, every, start)):
        try:
            update_scale(scaler, verdicts[i])
            got = scaler.scale
        except DivergedError:
            got = "DivergedError"
        rows.append((f"{'good' if verdicts[i] else 'bad'} step {i}: scale", want, got))
    compare_rows(SCALES, f"from scale {start:g}, every = {every}", rows)


def test_update_scale(exercise):
    """06.3  the scale follows the verdicts: halved, doubled, within its limits."""
    for length in range(1, 6):
        for verdicts in product((True, False), repeat=length):
            for every, start in product((1, 2, 3), (1.0, 2.0, 8.0, BIG)):
                check_scales(exercise.update_scale, verdicts, every, start)
    fixed = LossScale.constant()
    for good in (True, True, False):
        exercise.update_scale(fixed, good)
        rows = [("the scale", 1.0, fixed.scale)]
        compare_rows("a constant scale stays 1.", "dynamic = False", rows)


# --- 06.4 -----------------------------------------------------------------------------------------

TOGETHER = (
    "a number that is inf or NaN on any rank makes the sum of squares inf or NaN, and that sum all "
    "ranks have. So all skip, or all update; then all go on with the same scale."
)
UNSCALED = (
    "the norm is that of the gradient without the scale that this step's backward began with."
)
NOTHING_MOVES = "a skipped step changes nothing: no parameter, no master, no moment, no element."


def told(world, exercise, count, slopes, scale=None, **how):
    """What each rank tells of each step with the student's `agree`; a rank that ended early: so."""

    def program(comm, n):
        mine = scale() if scale else LossScale(8.0)
        yours = {"_agree": exercise.agree}
        return steps(comm, count, slopes, mine, methods=yours, **how)

    found = run_all(world, program)
    return [of_rank + [Told("the end", 0)] * (count - len(of_rank)) for of_rank in found]


def test_agree(exercise):
    """06.4  the norm has no loss scale in it, also in steps after which the scale changes."""
    for ranks, stage in product(FEW, (0, 2)):
        world = World(ranks, 2)
        found = told(world, exercise, 7, [3.0, 4.0], lambda: LossScale(8.0, 3), stage=stage)
        name = f"{world.name}, stage {stage}, gradient [3 4], scale doubled every 3 steps"
        for number, scale in enumerate((8, 8, 8, 16, 16, 16, 32)):
            at = [of_rank[number] for of_rank in found]
            norms = [f"norm {a.norm:g}" for a in at]
            compare(UNSCALED, f"{name}, step {number}", ["norm 5"] * ranks, norms, str, "find")
            scales = [f"scale {a.scale:g}" for a in at]
            compare(TOGETHER, name, [f"scale {scale}"] * ranks, scales, str, "use")


def bad_worlds():
    """Every place of one bad element, on few ranks, at every stage."""
    for ranks, stage, value in product(FEW, (0, 1, 2, 3), (np.inf, np.nan)):
        for index in range(ranks) if stage in (0, 2) else [ranks - 1]:
            yield World(ranks, ranks), stage, index, value


def test_agree_to_skip(exercise):
    """06.4  if one rank sees an overflow, all skip, and nothing moves; then all go on."""
    for world, stage, index, value in bad_worlds():
        slopes = np.arange(1.0, world.n + 1)
        found = told(world, exercise, 3, slopes, stage=stage, bad={1: (index, value)})
        name = f"{world.name}, stage {stage}, gradient {index} is {value} in step 1"
        for number, want in enumerate(("update", "skip", "update")):
            said = [of_rank[number].said for of_rank in found]
            compare(TOGETHER, f"{name}, step {number}", [want] * world.ranks, said, str, "say")
            if want == "skip":
                moved = ["moved" if a[1].bits != a[0].bits else "the same" for a in found]
                compare(NOTHING_MOVES, name, ["the same"] * world.ranks, moved, str, "keep")
        scales = [f"scale {of_rank[2].scale:g}" for of_rank in found]
        compare(TOGETHER, f"{name}, then", ["scale 4"] * world.ranks, scales, str, "use")


def test_agree_to_end(exercise):
    """06.4  without a loss scale to lower, every rank ends alike."""
    law = "with a constant scale a norm that is not finite ends the run, on all ranks alike."
    for ranks in FEW:
        world = World(ranks, ranks)
        bad = {0: (ranks - 1, np.inf)}
        found = told(world, exercise, 1, np.ones(ranks), LossScale.constant, bad=bad)
        name = f"{world.name}, bfloat16's scale of 1, gradient {ranks - 1} is inf"
        said = [of_rank[0].said for of_rank in found]
        compare(law, name, ["DivergedError"] * ranks, said, str, "say")


# --- 06.5 -----------------------------------------------------------------------------------------

OUT_AGAIN = (
    "the loss scale is there for backward only: before the update it is divided out, and clipping "
    "goes by the norm without it. So weights do not depend on the scale."
)


def moved(world, exercise, count, slopes, scale, **how):
    """By how much the steps move each weight, on each rank, with the student's `update`."""

    def program(comm, n):
        yours = {"_update": exercise.update}
        return 1 - weights(comm, count, slopes, LossScale(scale), methods=yours, **how)

    return run_all(world, program)


def test_update(exercise):
    """06.5  weights move as without a scale, clipped by the true norm."""
    how = {"rate": 0.25, "dtype": np.float32}
    for ranks, scale, clip in product((1, 2), (1.0, 8.0, 2.0**16), (0.0, 10.0, 2.5, 0.5)):
        world = World(ranks, 2)
        found = moved(world, exercise, 2, [3.0, 4.0], scale, clip=clip, rule=SGD(), **how)
        factor = clip / 5 if clip and clip < 5 else 1.0
        want = np.float32([1.5, 2.0]) * np.float32(factor)
        name = f"{world.name}, gradient [3 4], scale {scale:g}, clip {clip:g}, 2 steps of SGD"
        near(OUT_AGAIN, name, want, found)


def test_update_counts_from_1(exercise):
    """06.5  ... and the first update is number 1: Adam then moves each weight by the rate."""
    law = "Adam divides by 1 - beta**t; in the first step that makes the gradient over its size."
    for ranks in (1, 2):
        world = World(ranks, 2)
        rule = AdamW(weight_decay=0.0)
        found = moved(world, exercise, 2, [3.0, 4.0], 8.0, rate=0.25, dtype=np.float32, rule=rule)
        name = f"{world.name}, the same gradient twice, Adam at rate 1/4"
        near(law, name, np.float32([0.5, 0.5]), found)


def test_update_does_not_count_skipped_steps(exercise):
    """06.5  ... also if the steps before it were skipped."""
    law = "a skipped step is no update, so the moments have seen nothing: t is 1 at the first one."
    for ranks, skipped in product((1, 2), (1, 2)):
        world, bad = World(ranks, 2), dict.fromkeys(range(skipped), (0, np.inf))
        how = {"rate": 0.25, "dtype": np.float32, "rule": AdamW(weight_decay=0.0), "bad": bad}
        found = moved(world, exercise, skipped + 1, [3.0, 4.0], 8.0, **how)
        name = f"{world.name}, {skipped} skipped, then one update by Adam at rate 1/4"
        near(law, name, np.float32([0.25, 0.25]), found)


def near(law, name, want, found):
    """Compare weights on all ranks, up to a few roundings of float32."""
    close = [want if np.allclose(want, got, rtol=1e-4, atol=1e-6) else got for got in found]
    compare(law, name, [want] * len(found), close, lambda x: f"by {digits(x)}", "move")


def test_update_is_the_same_everywhere(exercise):
    """06.5  ... on any number of ranks and at every ZeRO stage, bit for bit."""
    law = "what is updated, and by what, does not depend on who keeps it."
    slopes = [3.0, 4.0, 12.0]
    (alone,) = moved(World(1, 3), exercise, 3, slopes, 8.0, clip=1.0)
    for ranks, stage in product((2, 3, 4), (0, 1, 2, 3)):
        world = World(ranks, 3)
        found = moved(world, exercise, 3, slopes, 8.0, clip=1.0, stage=stage)
        name = f"{world.name}, stage {stage}, after 3 steps"
        compare(law, name, [alone] * ranks, found, lambda x: f"by {digits(x)}", "move")
