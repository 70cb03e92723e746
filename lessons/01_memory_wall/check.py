"""The laws of lesson 01, in the order of its blanks; a test is about the blank in its name.

Nothing here is compared with a formula. Models are built, arrays allocated, products computed; what
is counted then is what the sheet should say. Small models come first.
"""

from dataclasses import replace

import numpy as np

from minidist.learn.laws import LawBroken, counted, run
from minidist.nn import At, DecoderConfig, allocate, build_decoder
from minidist.ops.half import named
from minidist.parallel.ledger import Ledger
from minidist.parallel.mesh import Mesh
from minidist.parallel.zero import Zero
from minidist.plan.memory import State
from minidist.testing.flops import counted_products
from minidist.train.optimizer import SGD, AdamW

KINDS = ("parameters", "gradients", "masters", "moments")
STATES = [
    State("float32", None, "sgd"),
    State("float32", None, "adamw"),
    State("bfloat16", "bfloat16", "adamw"),
    State("bfloat16", "bfloat16", "sgd"),
    State("float16", None, "adamw"),
    State("float32", "bfloat16", "adamw"),
    State("float64", None, "adamw"),
]
SMALLEST = DecoderConfig(
    layers=1, width=4, heads=2, groups=1, head_size=2, hidden=3, vocabulary=5, tied=True
)
SHAPES = [
    SMALLEST,
    replace(SMALLEST, tied=False),
    replace(SMALLEST, groups=2),
    replace(SMALLEST, layers=3, hidden=0),
    replace(SMALLEST, layers=2, width=6, heads=6, groups=3, head_size=4, bias=True),
    replace(SMALLEST, layers=2, width=8, head_size=0, hidden=10, vocabulary=11, tied=False),
]


def sheet(law, headline, rows):
    """A broken law with a table: the first row is the header, text to the left, numbers right."""
    rows = [[str(cell) for cell in row] for row in rows]
    wide = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for first, *rest in rows:
        cells = [cell.rjust(w) for cell, w in zip(rest, wide[1:], strict=True)]
        lines.append("  ".join([first.ljust(wide[0]), *cells]).rstrip())
    raise LawBroken(law, headline, "\n".join(lines))


def words(shape):
    """A shape for people."""
    heads = f"{counted(shape.heads, 'head')} of {shape.head} in {counted(shape.groups, 'group')}"
    return (
        f"{counted(shape.layers, 'block')}, width {shape.width}, {heads}, hidden {shape.inner}, "
        f"vocabulary {shape.vocabulary}, {'' if shape.tied else 'not '}tied"
        f"{', biases' if shape.bias else ''}"
    )


def parameters(units):
    """The parameters of a model, each once."""
    return list(dict.fromkeys(p for unit in units for p in unit.parameters()))


def allocated(state):
    """The bytes of each kind that a real model holds, and its parameters: ZeRO stage 0, 1 rank."""

    def program(comm):
        optimizer = AdamW() if state.optimizer == "adamw" else SGD()
        ledger, types = Ledger(), {"dtype": named(state.dtype)}
        if state.grad_dtype:
            types["grad_dtype"] = named(state.grad_dtype)
        units = build_decoder(SMALLEST)
        Zero(units, optimizer, Mesh(comm), 0, ledger=ledger, **types)
        return ledger.held, sum(p.size for p in parameters(units))

    return run(program, ranks=1)[0]


def check_state(function, state):
    """The sheet for one parameter, times the parameters, is what is allocated."""
    law = (
        "the bytes of a formula are the bytes of the arrays. A half type has a master of 4 bytes; "
        "moments, and gradients unless told otherwise, are as large as what the optimiser changes."
    )
    held, size = allocated(state)
    got = function(state)
    name = f"{state.dtype}, gradients {state.grad_dtype or 'not said'}, {state.optimizer}"
    if not isinstance(got, dict) or set(got) != set(KINDS):
        raise LawBroken(law, f"{name}: should be a dict with {', '.join(KINDS)}, is {got!r}")
    wrong = [kind for kind in KINDS if got[kind] * size != held[kind]]
    if wrong:
        kind = wrong[0]
        headline = (
            f"{name}: {kind} should be {held[kind] // size} bytes a parameter, are {got[kind]}"
        )
        rows = [("kind", "allocated", "a parameter", "yours")]
        rows += [
            (("-> " if k == kind else "   ") + k, held[k], held[k] // size, got[k]) for k in KINDS
        ]
        rows.append(("   together", *(sum(x) for x in list(zip(*rows[1:], strict=True))[1:])))
        sheet(law, f"{headline}\n(the model has {size} parameters)", rows)


def test_bytes_of_a_parameter(exercise):
    """01.1  what is kept for a parameter is what a real model allocates, kind by kind."""
    for state in STATES:
        check_state(exercise.bytes_of_a_parameter, state)


def check_elements(law, what, function, shape, counted_ones):
    """A count of elements, and the real arrays one by one."""
    want, got = sum(p.size for p in counted_ones), function(shape)
    if want != got:
        rows = [("array", "shape", "elements")]
        rows += [(p.name, "x".join(map(str, p.shape)), p.size) for p in counted_ones[:14]]
        if len(counted_ones) > 14:
            rows.append((f"... ({len(counted_ones)} in all)", "", ""))
        sheet(law, f"{words(shape)}:\n{what} should be {want}, is {got!r}", rows)


def test_block_matrices(exercise):
    """01.2  the seven matrices of a block are those of a real block."""
    law = (
        "q and out are as wide as all query heads, k and v only as wide as the groups; gate, up "
        "and down are width times inner each."
    )
    for shape in SHAPES:
        every = parameters(build_decoder(shape))
        block = [p for p in every if p.name.startswith("blocks.0.") and len(p.shape) == 2]
        what = "block_matrices, of one block,"
        check_elements(law, what, exercise.block_matrices, shape, block)


def test_decoder_parameters(exercise):
    """01.3  all parameters are those of a real decoder, each once."""
    law = "every array of the model counts, and counts once; a tied head is the embedding table."
    for shape in SHAPES:
        every = parameters(build_decoder(shape))
        function = exercise.decoder_parameters
        check_elements(law, "decoder_parameters", function, shape, every)


def products(shape, batch, positions, recompute="none"):
    """Operations of all products with weights in a real step: those of forward, of backward."""
    labels = np.arange(batch * positions).reshape(batch, positions) % shape.vocabulary
    units = build_decoder(shape, lambda at: labels, recompute)
    allocate(parameters(units), np.float32, gradients=True)
    at, contexts, x = At(0, True, np.arange(batch), np.arange(positions)), [], labels
    with counted_products() as forward:
        for unit in units:
            x, context = unit.forward(x, at)
            contexts.append(context)
    dy = 1.0 / labels.size
    with counted_products() as backward:
        for unit in reversed(units):
            dy = unit.backward(contexts.pop(), dy)
    return sum(forward), sum(backward)


def multiplying(shape):
    """The weights that multiply, in the blocks and in the head."""
    every = parameters(build_decoder(replace(shape, tied=False)))
    blocks = sum(p.size for p in every if p.name.startswith("blocks.") and len(p.shape) == 2)
    return blocks, next(p.size for p in every if p.name == "head")


def check_flops(function, shape, batch, positions, recompute):
    """The formula, for blocks and head, is what a real step computes."""
    law = (
        "each weight multiplies each token, and the product is added: 2 operations in forward. "
        "Backward has two such products, for dx and for dw. Recomputation runs the blocks' forward "
        "again (here not the head's)."
    )
    tokens, (blocks, head) = batch * positions, multiplying(shape)
    forward, backward = products(shape, batch, positions, "unit" if recompute else "none")
    got = function(blocks, tokens, recompute) + function(head, tokens)
    if got == forward + backward:
        return
    rows = [("counted in a real step", "operations", "for each weight and token")]
    each = tokens * (blocks + head)
    rows += [("forward", forward, f"{forward / each:.3f}")]
    rows += [("backward", backward, f"{backward / each:.3f}")]
    rows += [("together", forward + backward, f"{(forward + backward) / each:.3f}")]
    rows += [("yours", got, f"{got / each:.3f}")]
    again = ", blocks recomputed" if recompute else ""
    said = f"{counted(tokens, 'token')}, {blocks} + {head} weights of blocks and head{again}"
    sheet(law, f"{said}: should be {forward + backward} operations, are {got}", rows)


def test_training_flops(exercise):
    """01.4  operations are those of a real step, recomputed or not."""
    for shape in SHAPES:
        for batch, positions in ((1, 1), (1, 2), (3, 4)):
            for recompute in (False, True):
                check_flops(exercise.training_flops, shape, batch, positions, recompute)


def test_training_days(exercise):
    """01.5  twice the devices or twice the rate, half the days; and a published run."""
    law = "all devices together do devices * rate operations a second; a day has 86400 seconds."
    for flops, devices, rate, want in [
        (86400.0, 1, 1.0, 1.0),
        (86400.0, 2, 1.0, 0.5),
        (86400.0, 1, 4.0, 0.25),
        (0.0, 3, 1.0, 0.0),
        (7 * 86400e12, 14, 1e12, 0.5),
    ]:
        got = exercise.training_days(flops, devices, rate)
        if not isinstance(got, int | float) or abs(got - want) > 1e-9:
            who = f"{counted(devices, 'device')}, {rate:g} operations a second each"
            raise LawBroken(law, f"{flops:g} operations, {who}: should be {want:g} days, is {got}")
    published = exercise.training_days(8 * 175e9 * 300e9, 1024, 140e12)
    if round(published) != 34:
        told = f"GPT-3 on 1024 devices at 140e12: published are 34 days, yours are {published:g}"
        raise LawBroken("published: Narayanan et al., SC 2021, on training time.", told)
