"""The laws of lesson 06, in the order of its blanks; a test is about the blank in its name.

From 06.3 on your functions are methods of a training step whose gradient is known beforehand, see
minidist/testing/scaled.py. All its numbers are such that only what should be rounded is.
"""

from functools import partial
from itertools import pairwise, product
from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from minidist.errors import DivergedError
from minidist.learn.laws import LARGER, World, compare, plain, run_all
from minidist.ops.half import named
from minidist.testing.rows import compare_rows
from minidist.testing.scaled import kept, training
from minidist.train.optimizer import SGD, AdamW
from minidist.train.precision import LossScale
from minidist.train.step import Step

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


def textbook(x, gradients, lr, b1, b2, eps, decay):
    """Algorithm 2 of Loshchilov and Hutter in float64: [(m, v, data) after each step]."""
    m, v, after = 0 * x, 0 * x, []
    for t, g in enumerate(gradients, 1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        x = x - lr * decay * x - lr * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
        after.append((m, v, x))
    return after


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
        want = textbook(x, gradients, lr, *betas, eps, decay)
        data, m, v = x.copy(), np.zeros(2), np.zeros(2)
        for t, (g, right) in enumerate(zip(gradients, want, strict=True), 1):
            exercise.adamw(data, g.copy(), m, v, lr, *betas, eps, decay, t)
            world = f"after step {t} of gradients 4 4 0.5 and 1 -1 1, {name}"
            if not gradients.any():
                world = f"after step {t} of gradients 0, {name}"
            names = ("m", "v", "data")
            for what, a, b in zip(names, right, (m, v, data), strict=True):
                same = np.allclose(a, b, rtol=1e-12, atol=1e-12)
                shown = digits(a) if same else digits(b)
                if not same and shown == digits(a):
                    shown = f"{b!r}"
                compare_rows(TEXTBOOK, world, [(what, digits(a), shown)])


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
    same = [(what, digits(a), digits(b) if a.tobytes() != b.tobytes() else digits(a))
            for what, a, b in zip(("data", "grad", "m", "v"), *results, strict=True)]  # fmt: skip
    compare_rows(ANY_CUT, f"{n} elements, step {t}, cut at {ends}", same)


# --- 06.3 -----------------------------------------------------------------------------------------

SCALES = (
    "a bad step halves the scale, `every` good ones in a row since it last changed double it; it "
    "never leaves 1 to 2**24. A bad step at scale 1 is a DivergedError."
)


def by_the_rule(verdicts, every, scale):
    """The scales after each step, from the history."""
    scales, since = [], 0
    for i, good in enumerate(verdicts, 1):
        if not good:
            scale, since = scale / 2, i
        elif i - since == every:
            scale, since = min(2 * scale, BIG), i
        scales.append("DivergedError" if scale < 1 else scale)
        if scale < 1:
            break
    return scales


def scales(update_scale, verdicts, every, start):
    """The scales after each step, by the function."""
    scaler, found = LossScale(start, every), []
    for good in verdicts:
        try:
            update_scale(scaler, good)
        except DivergedError:
            return [*found, "DivergedError"]
        found.append(scaler.scale)
    return found


def check_scales(update_scale, verdicts, every, start):
    want = by_the_rule(verdicts, every, start)
    got = scales(update_scale, verdicts, every, start)
    got += ["nothing"] * (len(want) - len(got))
    names = [f"{'good' if v else 'bad'} step {i}: scale" for i, v in enumerate(verdicts)]
    world = f"from scale {start:g}, every = {every}"
    rows = [(n, _number(a), _number(b)) for n, a, b in zip(names, want, got, strict=False)]
    compare_rows(SCALES, world, rows)


def _number(value):
    return value if isinstance(value, str) else f"{value:g}"


def test_update_scale(exercise):
    """06.3  the scale follows the verdicts: halved, doubled, within its limits."""
    for length in range(1, 6):
        for verdicts in product((True, False), repeat=length):
            for every, start in product((1, 2, 3), (1.0, 2.0, 8.0, BIG)):
                check_scales(exercise.update_scale, verdicts, every, start)
    fixed = LossScale.constant()
    for good in (True, True, False):
        exercise.update_scale(fixed, good)
        compare_rows(
            "a constant scale stays 1.", "dynamic = False", [("the scale", 1.0, fixed.scale)]
        )


# --- 06.4 -----------------------------------------------------------------------------------------

TOGETHER = (
    "a number that is inf or NaN on any rank makes the sum of squares inf or NaN, and that sum all "
    "ranks have. So all skip, or all update; then all go on with the same scale."
)
UNSCALED = (
    "the norm is that of the gradient without the scale that this step's backward began with."
)
NOTHING_MOVES = "a skipped step changes nothing: no parameter, no master, no moment, no element."


def steps(comm, n, count, start=8.0, every=100, **how):
    """What each of `count` steps tells, the scale before it, and the bits kept after it."""
    yours = {k: how.pop(k) for k in ("_agree", "_update") if k in how}
    rule = how.pop("rule", AdamW)()
    scale = LossScale(start, every)
    slopes = how.pop("slopes", np.arange(1.0, n + 1))
    kind = type("YourStep", (Step,), yours)
    step = training(comm, slopes, scale, kind=kind, rule=rule, **how)
    found = []
    for number in range(count):
        before = scale.scale
        try:
            outcome = step(number)
        except DivergedError:
            found.append(SimpleNamespace(said="DivergedError", scale=before))
            break
        said = "skip" if outcome.skipped else "update"
        found.append(SimpleNamespace(said=said, scale=before, norm=outcome.norm, bits=kept(step)))
    return found


def test_agree(exercise):
    """06.4  the norm has no loss scale in it, also in steps after which the scale changes."""
    for ranks, stage in product(FEW, (0, 2)):
        world = World(ranks, 2)
        program = partial(steps, _agree=exercise.agree, slopes=[3.0, 4.0], stage=stage, every=3)
        found = run_all(world, program, 7)
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
        how = {"_agree": exercise.agree, "stage": stage, "bad": {1: (index, value)}}
        found = run_all(world, partial(steps, **how), 3)
        name = f"{world.name}, stage {stage}, gradient {index} is {value} in step 1"
        for number, want in enumerate(("update", "skip", "update")):
            said = [of_rank[number].said if number < len(of_rank) else "the end"
                    for of_rank in found]  # fmt: skip
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

        def program(comm, n):
            how = {"kind": type("YourStep", (Step,), {"_agree": exercise.agree})}
            bad = {0: (n - 1, np.inf)}
            step = training(comm, [1.0] * n, LossScale.constant(), bad=bad, **how)
            try:
                return "skip" if step(0).skipped else "update"
            except DivergedError:
                return "DivergedError"

        found = run_all(world, program)
        name = f"{world.name}, bfloat16's scale of 1, gradient {ranks - 1} is inf"
        compare(law, name, ["DivergedError"] * ranks, found, str, "say")


# --- 06.5 -----------------------------------------------------------------------------------------

OUT_AGAIN = (
    "the loss scale is there for backward only: before the update it is divided out, and clipping "
    "goes by the norm without it. So weights do not depend on the scale."
)


def moved(comm, n, update, scale, clip, rule):
    """By how much two steps at rate 1/4 move each weight, on rank 0's whole buffer."""
    kind = type("YourStep", (Step,), {"_update": update})
    how = {"kind": kind, "clip": clip, "rate": 0.25, "dtype": np.float32}
    step = training(comm, [3.0, 4.0], LossScale(scale), rule=rule(), **how)
    step(0), step(1)
    return 1.0 - step.sync.buckets[0].stored


def by(x):
    return f"by {digits(x)}"


def test_update(exercise):
    """06.5  weights move as without a scale, clipped by the true norm."""
    for ranks, scale, clip in product((1, 2), (1.0, 8.0, 2.0**16), (0.0, 10.0, 2.5, 0.5)):
        world = World(ranks, 2)
        found = run_all(world, moved, exercise.update, scale, clip, SGD)
        factor = clip / 5 if clip and clip < 5 else 1.0
        want = [np.float32([1.5, 2.0]) * np.float32(factor)] * ranks
        close = [w if np.allclose(w, f, rtol=1e-5, atol=1e-6) else f
                 for w, f in zip(want, found, strict=True)]  # fmt: skip
        name = (
            f"{world.name}, gradient [3 4], scale {scale:g}, clip {clip:g}, 2 steps of SGD at 1/4"
        )
        compare(OUT_AGAIN, name, want, close, by, "move")


def test_update_counts_from_1(exercise):
    """06.5  ... and the first update is number 1: Adam then moves each weight by the rate."""
    law = "Adam divides by 1 - beta**t; in the first step that makes the gradient over its size."
    for ranks in (1, 2):
        world = World(ranks, 2)
        found = run_all(world, moved, exercise.update, 8.0, 0.0, partial(AdamW, weight_decay=0.0))
        want = [np.float32([0.5, 0.5])] * ranks
        close = [w if np.allclose(w, f, rtol=1e-4) else f for w, f in zip(want, found, strict=True)]
        name = f"{world.name}, the same gradient twice, Adam at rate 1/4"
        compare(law, name, want, close, by, "move")


def weights_after(comm, n, update, stage):
    """All parameters after three clipped steps, gathered."""
    kind = type("YourStep", (Step,), {"_update": update})
    step = training(comm, [3.0, 4.0, 12.0], LossScale(8.0), kind=kind, stage=stage, clip=1.0)
    for number in range(3):
        step(number)
    (weights,) = (b.flat.astype(np.float32) for b in step.sync.gathered())
    return weights


def test_update_is_the_same_everywhere(exercise):
    """06.5  ... on any number of ranks and at every ZeRO stage, bit for bit."""
    law = "what is updated, and by what, does not depend on who keeps it."
    (alone,) = run_all(World(1, 3), weights_after, exercise.update, 0)
    for ranks, stage in product((2, 3, 4), (0, 1, 2, 3)):
        world = World(ranks, 3)
        found = run_all(world, weights_after, exercise.update, stage)
        name = f"{world.name}, stage {stage}, weights after 3 steps"
        compare(law, name, [alone] * ranks, found, plain)
