"""`minidist generate --from RUN "prompt"`: continue a text with a trained model.

    minidist generate --from runs/2025-03-01_14-05-09 "ROMEO:" --tokens 200 --temperature 0.7

One process, no communicator. The bytes drawn depend on the seed alone; see `minidist.train.sample`.
"""

import argparse
import os
import sys
from typing import Any

import numpy as np

from minidist.comm import run
from minidist.device import Device, choose_device
from minidist.nn import build_decoder
from minidist.ops.half import down
from minidist.options import resolve
from minidist.train.checkpoint import MANIFEST, newest, whole_weights
from minidist.train.config import TrainConfig
from minidist.train.folder import RunFolder
from minidist.train.manifest import read_manifest
from minidist.train.sample import continue_text
from minidist.train.weights import Tensors, check_same_shapes, load_weights


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.add_argument("prompt", nargs="?", default="", help="the beginning of the text")
    parser.add_argument("--from", dest="run", required=True, metavar="RUN", help="a run's folder")
    parser.add_argument("--tokens", type=int, default=200, help="bytes to add (200)")
    parser.add_argument(
        "--temperature", type=float, default=0.8, help="0 takes the likeliest byte (0.8)"
    )
    parser.add_argument(
        "--top-k", type=int, default=0, help="draw from the k likeliest bytes only, 0 for all (0)"
    )
    parser.add_argument("--seed", type=int, default=0, help="another seed, another text (0)")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")


def main(args: argparse.Namespace) -> int:
    """Print the prompt and its continuation."""
    (device,) = run(lambda comm: choose_device(args.device, comm), ranks=1)
    print(
        continuation(
            RunFolder(args.run),
            os.fsencode(args.prompt),
            tokens=args.tokens,
            temperature=args.temperature,
            top_k=args.top_k,
            seed=args.seed,
            device=device,
        )
    )
    sys.stdout.flush()
    return 0


def continuation(
    folder: RunFolder, prompt: bytes, *, device: Device | None = None, **how: Any
) -> str:
    """Return the prompt and what the model of a run makes of it. `how`: see `continue_text`."""
    folder.must_exist()
    config = resolve(TrainConfig, argparse.Namespace(), folder.config)
    xp = device.xp if device else np
    units = load_decoder(config, folder, xp)
    drawn = bytes(continue_text(units, prompt, context=config.context, xp=xp, **how))
    return printable(prompt + drawn).strip("\n")


def printable(text: bytes) -> str:
    """Return bytes as text; what no terminal should be sent becomes a replacement character."""
    characters = text.decode("utf-8", errors="replace")
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in characters)


def load_decoder(config: TrainConfig, folder: RunFolder, xp: Any = np) -> list[Any]:
    """Return a decoder that ends in logits, with the weights that the run has saved."""
    units = build_decoder(config.decoder())
    parameters = dict.fromkeys(p for unit in units for p in unit.parameters())
    weights, precision = saved_weights(folder), config.precision()
    check_same_shapes(weights, {p.name: np.empty(p.local, precision.master) for p in parameters})
    for p in parameters:
        p.data = xp.asarray(down(weights[p.name], precision.dtype))
    return units


def saved_weights(folder: RunFolder) -> Tensors:
    """Return all weights of a run: from their own file, or from the checkpoint if that is newer.

    A run whose ranks may not hold the whole model has no such file, and one that was stopped
    between the checkpoint and the file has that of an earlier step.
    """
    path = newest(folder.checkpoints)
    if path is None:
        return load_weights(folder.model).tensors
    if folder.model.exists():
        alone = load_weights(folder.model)
        if alone.step >= read_manifest(path / MANIFEST).step:
            return alone.tensors
    return dict(whole_weights(path))
