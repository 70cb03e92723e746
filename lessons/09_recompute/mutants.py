"""Wrong versions of the solutions: one changed line each, and who met it. check.py rejects all.

    ./run check 09 --mutant 1       shows what check.py says to the first one

Reports are retold in our own words.
"""

from minidist.learn.subject import Mutant

AGAIN = "_, inner = self.layer.forward(x, at)"

MUTANTS = [
    Mutant(
        "other random numbers",
        "09.2",
        AGAIN,
        "_, inner = self.layer.forward(x, type(at)(**{**vars(at), 'step': at.step + 1}))",
        "allenai/OLMo-core#828, pytorch/pytorch#190717, openai/guided-diffusion#167: dropout was "
        "drawn anew in the second forward, so gradients belonged to another network than the "
        "loss. Training goes on, a little worse.",
    ),
    Mutant(
        "no dropout the second time",
        "09.2",
        AGAIN,
        "_, inner = self.layer.forward(x, type(at)(**{**vars(at), 'train': False}))",
        "The second forward runs as in evaluation. With dropout 0, as in most tests, all is right.",
    ),
    Mutant(
        "what is kept anyway is kept, too",
        "09.1",
        "return y, (x, at)",
        "return y, (x, at, self.layer.forward(x, at)[1])",
        "A reference to what should be gone, in a closure or a list, is enough: the results are "
        "right, and nothing is saved. Only a count of bytes sees it.",
    ),
    Mutant(
        "the output in place of the input",
        "09.1",
        "return y, (x, at)",
        "return y, (y, at)",
        "Shapes are the same, so nothing fails. It happens by itself where a layer writes its "
        "output over its input.",
    ),
    Mutant(
        "gradients added twice",
        "09.2",
        "at.recomputed(inner, ctx)",
        "at.recomputed(inner, ctx); self.layer.backward(inner, dy, later)",
        "pytorch/torchtitan#4594, found in review: what a layer did besides its result, there to "
        "count tokens of each expert, was done by both forwards. Here it is the gradient, which "
        "Adam hides.",
    ),
    Mutant(
        "counted twice",
        "09.2",
        "at.recomputed(inner, ctx)",
        "at.recomputed(inner, ())",
        "The input is in both, what was kept and what has come back. The memory that is reported "
        "is more than there is.",
    ),
    Mutant(
        "nothing is deferred",
        "09.2",
        "return self.layer.backward(inner, dy, later)",
        "return self.layer.backward(inner, dy)",
        "A schedule that fills its idle time with weight gradients finds none. Numbers are right, "
        "and the pipeline of lesson 13 has its bubble back.",
    ),
    Mutant(
        "the tail is dropped",
        "09.3",
        "range(0, len(layers), length)",
        "range(0, len(layers) - len(layers) % length, length)",
        "The layers that make no whole segment are left out of the model. With 12 layers and "
        "length 1, 2, 3 or 4 nobody sees it.",
    ),
    Mutant(
        "the last segment is always full",
        "09.4",
        "return max(at_full, at_rest)",
        "return at_full",
        "0 if the segment is longer than the model, and too little if the last one is only a "
        "little shorter: a plan that fits, and a run that does not.",
    ),
    Mutant(
        "the input counts twice",
        "09.4",
        "at_full = (full - 1) * stream",
        "at_full = full * stream",
        "The input of the segment at work is what its first layer keeps. One storage, one count.",
    ),
    Mutant(
        "always the root",
        "09.5",
        "return min(range(1, layers + 1), key=lambda n: segmented(layers, n, stream, whole))",
        "return max(1, round(layers**0.5))",
        "The formula as it is often quoted. A block that keeps 17 times its input needs nearly "
        "twice the memory with segments of 4 than with segments of 1.",
    ),
]
