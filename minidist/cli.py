"""The command `minidist`: a table of commands, each a module that is imported when it is used.

A command's module has `configure(parser)`, which adds its flags, and `main(args)`, which does the
work and returns the exit status; if flags may contradict each other, also `check(args)`.

`import minidist.cli` costs no NumPy, no MPI and no GPU: what a command does not need, it does not
wait for.
"""

import argparse
import os
import sys
from importlib import import_module

import minidist
from minidist.errors import LaunchError, MinidistError

COMMANDS = {
    "train": ("minidist.train.command", "train a small GPT, on one process or on many ranks"),
    "generate": ("minidist.train.generate", "continue a text with a trained model"),
    "memory": (
        "minidist.plan.show_memory",
        "what a model's state takes on each rank, by ZeRO stage",
    ),
    "launch": ("minidist.launch", "start a command on several MPI ranks"),
    "measure-links": ("minidist.measure_links", "latency and bandwidth between ranks, here"),
    "lessons": ("minidist.learn.listing", "the lessons: what is done, and where to go on"),
    "lesson": ("minidist.learn.lesson", "a lesson's question, your prediction, its demo"),
    "check": ("minidist.learn.check", "check what you have written in a lesson's exercise"),
    "hint": ("minidist.learn.hint", "the next of three hints for a blank"),
    "solution": ("minidist.learn.solution", "how the package does it, beside what you wrote"),
    "reset": ("minidist.learn.reset", "an exercise as it was; what you wrote is kept beside it"),
    "doctor": ("minidist.doctor", "check this machine, with a remedy for each fault"),
}


def usage() -> str:
    """Return the help of the whole command."""
    rows = [f"  {name:13} {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(
        ["usage: minidist COMMAND ...", "", *rows, "", "minidist COMMAND -h shows its flags."]
    )


def parse(name: str, words: list[str]) -> argparse.Namespace:
    """Return the parsed flags of command `name`. Wrong flags end the process with status 2."""
    module, text = COMMANDS[name]
    command = import_module(module)
    parser = argparse.ArgumentParser(f"minidist {name}", description=text, allow_abbrev=False)
    command.configure(parser)
    read = getattr(command, "parse", argparse.ArgumentParser.parse_args)  # launch has its own
    args: argparse.Namespace = read(parser, words)
    args.main = command.main
    return args


def run(words: list[str]) -> int:
    """Run one command line and return its exit status; errors are raised."""
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if words else 2
    if words[0] in ("-V", "--version"):
        print(f"minidist {minidist.__version__}")
        return 0
    if words[0] not in COMMANDS:
        print(f"minidist: no command '{words[0]}'.\n\n{usage()}", file=sys.stderr)
        return 2
    args = parse(words[0], words[1:])
    if words[0] == "launch" and args.command[:1] == ["minidist"]:
        check(args.command[1:])
    return int(args.main(args))


def check(words: list[str]) -> None:
    """Refuse a wrong command line, or show its help, once, before N ranks do so."""
    if words and words[0] in COMMANDS:
        args, command = parse(words[0], words[1:]), import_module(COMMANDS[words[0]][0])
        if hasattr(command, "check"):
            command.check(args)


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status: 0 well, 1 an error, 2 a wrong command line."""
    words = sys.argv[1:] if argv is None else argv
    try:
        status = run(words)
        sys.stdout.flush()
        return status
    except MinidistError as error:
        if "minidist.comm.mpi" in sys.modules and not isinstance(error, LaunchError):
            raise  # one of many ranks: `world()` ends them all, with rank and traceback
        print(f"minidist {words[0]}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader has seen enough: minidist doctor | head -2
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
