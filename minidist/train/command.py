"""`minidist train`: train a small GPT on bytes, on one process or on many ranks.

    minidist train                                 one rank, no MPI needed
    minidist train --in-process 4                  four ranks in this process, one at a time
    minidist launch -n 4 -- minidist train         four MPI ranks
    srun -n 8 python -m mpi4py -m minidist train   eight, under Slurm

A stopped run (Ctrl-C, `--stop-after`) goes on with `--resume RUN`, on any number of ranks. On the
same number it computes the same bits as if it had not been stopped.
"""

import argparse
import sys
from dataclasses import fields

import numpy as np

from minidist.comm import Comm, run
from minidist.comm.detect import launched
from minidist.device import choose_device
from minidist.errors import (
    CheckpointError,
    ConfigError,
    DivergedError,
    MemoryLimitError,
    MinidistError,
)
from minidist.files import replace_file
from minidist.launch import SIGNALLED
from minidist.options import add_flags, kinds, resolve
from minidist.parallel.mesh import Mesh
from minidist.train.config import Layout, Session, TrainConfig
from minidist.train.corpus import read_text
from minidist.train.folder import RunFolder, folder_of, together
from minidist.train.generate import continuation
from minidist.train.memory_report import memory_report, memory_rows
from minidist.train.report import loss_report, loss_rows, traffic_report
from minidist.train.run_page import Ending, run_page
from minidist.train.stop import StopRequest
from minidist.train.trainer import Trainer

PROMPT = b"\nROMEO:\n"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add a flag for each field of the configuration, of the layout and of the session."""
    add_flags(parser, TrainConfig, Layout, Session)


def main(args: argparse.Namespace) -> int:
    """Train, and return 0, 1 for an error, or 130 if a signal stopped the run."""
    wanted = check(args)
    in_process = wanted[2].in_process
    with StopRequest() as stop:
        if launched() and not in_process:
            from minidist.comm.mpi import leave, world

            status = sit(world(), *wanted, stop)
            leave()
            return status
        return int(max(run(sit, *wanted, stop, ranks=in_process or 1, stuck_after=600.0)))


def check(args: argparse.Namespace) -> tuple[TrainConfig, Layout, Session]:
    """Return what the flags ask for, or raise ConfigError or CheckpointError; nothing is run.

    `minidist launch` calls it before it starts ranks that would all say the same.
    """
    given = vars(args)
    session = Session(**{name: given[name] for name in kinds(Session) if name in given})
    return run_config(args, session), run_layout(args, session), session


def run_config(args: argparse.Namespace, session: Session) -> TrainConfig:
    """Return what is to be computed: by flags and `--config`, or as the resumed run had it."""
    if not session.resume:
        return resolve(TrainConfig, args, others=(Layout,))
    if getattr(args, "config", None):
        raise ConfigError("--resume takes the configuration of the run: leave out --config")
    folder = RunFolder(session.resume)
    folder.must_exist()
    stored = resolve(TrainConfig, argparse.Namespace(), folder.config)
    wanted = resolve(TrainConfig, args, folder.config)
    for name in (f.name for f in fields(TrainConfig) if f.name != "data"):  # may have moved
        if getattr(stored, name) != getattr(wanted, name):
            raise ConfigError(
                f"--resume {session.resume}: the run has {name} = {getattr(stored, name)!r}, not "
                f"{getattr(wanted, name)!r}: leave the flag out, or start a new run"
            )
    return wanted


def run_layout(args: argparse.Namespace, session: Session) -> Layout:
    """Return how the work lies on the ranks: as the resumed run had it, but for flags."""
    stored = RunFolder(session.resume).layout if session.resume else None
    return resolve(Layout, args, stored, others=(TrainConfig,))


def sit(
    comm: Comm, config: TrainConfig, layout: Layout, session: Session, stop: StopRequest
) -> int:
    """Run one sitting on this rank, and return the exit status. All ranks call it."""
    # a rank with another seed is overruled
    config, layout, session = comm.bcast_object((config, layout, session))
    try:
        trainer = prepare(comm, config, layout, session)
    except MinidistError as error:  # the same on all ranks, so one of them says it
        return refuse(comm, error)
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # a step checks its numbers itself
            finished = trainer.run(stop)
    except (DivergedError, CheckpointError) as error:  # likewise
        return refuse(comm, error)
    except (MemoryLimitError, OSError) as error:  # of this rank alone: it ends the others
        kind = MemoryLimitError if isinstance(error, MemoryLimitError) else ConfigError
        raise kind(f"{error}; go on with --resume {trainer.folder.path}") from None
    if finished:
        close(trainer)
        return 0
    trainer.say(
        f"stopped after step {trainer.done}; go on with --resume {trainer.folder.path} "
        f"(on {count(comm)}: the same bits)"
    )
    return SIGNALLED if any(comm.gather_objects(stop.requested)) else 0


def prepare(comm: Comm, config: TrainConfig, layout: Layout, session: Session) -> Trainer:
    """Return what is ready to run, or raise the same error on all ranks. All ranks call it."""
    device = choose_device(session.device, comm, session.share_devices)
    folder, mesh = folder_of(comm, session.resume or session.out), Mesh(comm)

    def build() -> Trainer:
        if not session.resume:
            folder.must_be_free()
        text = read_text(config.data)
        return Trainer(mesh, config, layout, session, folder, text, device.xp)

    def is_to_do() -> None:
        if 0 < session.stop_after <= trainer.done < config.steps:
            raise ConfigError(
                f"{folder.path} is at step {trainer.done} of {config.steps} already: --stop-after "
                f"{session.stop_after} is done"
            )
        if trainer.done >= config.steps and folder.report.exists():
            raise ConfigError(f"{folder.path} is finished, after {trainer.done} steps")

    trainer = together(comm, build)
    if session.resume:
        trainer.resume()
    together(comm, is_to_do)
    together(comm, trainer.open_folder)
    parts = -(-config.batch // comm.size)
    if layout.micro_batches > parts:
        trainer.say(
            f"note: {layout.micro_batches} micro-batches, but a rank has at most {parts} samples: "
            "the others are empty, and cost messages"
        )
    trainer.say(f"{trainer.text}")
    trainer.say(f"{count(comm)} on {device}, run {folder.path}")
    if comm.size > 1:
        trainer.say(mesh.describe(str(device)))
    return trainer


def refuse(comm: Comm, error: MinidistError) -> int:
    """Say an error that all ranks have, once, and return the exit status."""
    if comm.rank == 0:
        print(f"minidist train: {error}", file=sys.stderr)
    return 1


def count(comm: Comm) -> str:
    """Say how many ranks there are."""
    return "1 rank" if comm.size == 1 else f"{comm.size} ranks"


def sample(trainer: Trainer) -> str:
    """Return a text by the model, if rank 0 may hold all of it."""
    if trainer.saves.whole_fits:
        return continuation(trainer.folder, PROMPT, tokens=300)
    return (
        "no sample: the whole model is more than --memory-limit leaves; where there is room:\n"
        f"minidist generate --from {trainer.folder.path}"
    )


def close(trainer: Trainer) -> None:
    """End a finished run: check the replicas, print and write the report. All ranks call it."""
    comm, text, sync = trainer.comm, trainer.text, trainer.sync
    digest = trainer.check_replicas()
    traffic = trainer.traffic()
    if comm.rank == 0:
        losses = (
            loss_rows(text, trainer.corpus, trainer.val_loss)
            if trainer.val_loss is not None
            else []
        )
        shape, written = trainer.activations(), sample(trainer)
        print(f"{count(comm)}, the same weights on each, sha256 {digest[:12]}\n")
        print(written)
        if losses:
            print("\n" + loss_report(losses))
        print("\n" + traffic_report(sync, trainer.turns(), traffic))
        print("\n" + memory_report(sync, shape))
        about = f"{text}; {count(comm)}, ZeRO stage {sync.stage}, {sync.how.dtype}."
        rows, work = memory_rows(sync, shape), comm.state.scratch.nbytes
        write_page(trainer.folder, Ending(about, losses, traffic, rows, work, written))
    comm.barrier()


def write_page(folder: RunFolder, ending: Ending) -> None:
    """Write report.html. The run is complete and saved, so that a failure is no error."""
    try:
        replace_file(folder.report, run_page(folder, ending).encode())
        print(f"\nreport: {folder.report}", flush=True)
    except OSError as error:
        print(f"minidist train: no report: {error}", file=sys.stderr, flush=True)
