"""Short runs of `minidist train`, as a user would start them. For tests."""

import re
from dataclasses import replace

from minidist import cli
from minidist.train import metrics
from minidist.train.checkpoint import MANIFEST, newest, read_box
from minidist.train.manifest import read_manifest
from minidist.train.weights import load_weights

TINY = {
    "context": 8,
    "layers": 1,
    "width": 8,
    "heads": 2,
    "groups": 1,
    "batch": 5,
    "steps": 6,
    "dropout": 0.2,
    "lr": 0.02,
    "dtype": "float64",
    "log_every": 1,
    "validate_every": 4,
}


def train(*more, **flags):
    """Run the command as a user would, and return its exit status."""
    flags = {**({} if "resume" in flags else {"data": "text.txt", **TINY}), **flags}
    words = [w for name, v in flags.items() for w in ("--" + name.replace("_", "-"), str(v))]
    return cli.main(["train", *words, *more])


def rows(folder):
    """The metrics without what a clock has measured."""
    return [replace(row, tokens_per_s=0.0) for row in metrics.read(folder / "metrics.jsonl")]


def weights(folder):
    return load_weights(folder / "model.safetensors").tensors


def saved(folder):
    """The manifest of the newest checkpoint of a run."""
    return read_manifest(newest(folder / "checkpoints") / MANIFEST)


def state(folder):
    """Every saved tensor, whole, by slot and name: the same from any number of ranks."""
    return {
        name: read_box(
            newest(folder / "checkpoints"), pieces, tuple((0, n) for n in pieces[0].shape)
        )
        for name, pieces in saved(folder).tensors().items()
    }


def same_run(a, b):
    """Bit for bit: everything that was logged and everything that was saved."""
    assert rows(a) == rows(b)
    x, y = (load_weights(folder / "model.safetensors") for folder in (a, b))
    assert (x.step, x.about) == (y.step, y.about)
    same_arrays(x.tensors, y.tensors)
    same_arrays(state(a), state(b))
    assert (saved(a).step, saved(a).about) == (saved(b).step, saved(b).about)


def same_arrays(x, y):
    """Bit for bit, by name."""
    assert {n: t.tobytes() for n, t in x.items()} == {n: t.tobytes() for n, t in y.items()}


def refused(capsys, status, words):
    """One sentence on standard error, and nothing else."""
    error = capsys.readouterr().err
    assert status == 1
    assert error.count("\n") == 1, error
    assert re.search(words, error), error
