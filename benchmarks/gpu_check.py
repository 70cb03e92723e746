"""One script for a machine with a GPU: does the device compute right, and how fast?

    python benchmarks/gpu_check.py --json gpu.json      under five minutes, no network
    python benchmarks/gpu_check.py --fake               the same on a device that is not there

It needs NumPy, CuPy and this checkout. What else is missing (greenlet, mpi4py, an MPI library) is
named, and only the checks that need it are skipped. The JSON is written anew after every check, so
that a run which is cut short leaves what it has found.

Exit status 0 when no check failed, 1 when one did, 2 without a GPU. What is compared with what
stands in `device_ops` and `device_checks`. Written without a GPU at hand: so far it has only run
with --fake.
"""

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from timing import from_checkout, restart_with

if __name__ == "__main__":
    restart_with(from_checkout())

import numpy as np
from device_checks import Check, checks
from device_ops import Skip, Target
from device_speed import Timing, timings
from table import circumstances

from minidist.device import gpu
from minidist.testing import fake_device

ROOT = str(Path(__file__).resolve().parent.parent)


@dataclass
class Finding:
    """What came of one check: status "ok", "failed" or "skipped"."""

    name: str
    status: str
    detail: str
    seconds: float


def examine(name: str, work: Callable[[], str]) -> Finding:
    """Run one check; whatever goes wrong is its finding, and the next check runs."""
    start = time.perf_counter()
    try:
        status, detail = "ok", work()
    except Skip as reason:
        status, detail = "skipped", str(reason)
    except Exception as error:
        status, detail = "failed", f"{type(error).__name__}: {error} ({place(error)})"
    return Finding(name, status, detail, time.perf_counter() - start)


def place(error: Exception) -> str:
    """Return the innermost line of this project that an exception has passed."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if f.filename.startswith(ROOT)] or list(frames)
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"


def find_target(fake: bool) -> Target | str:
    """Return the device to be checked, or why there is none."""
    if fake:
        return Target("fake", fake_device.xp, lambda: None, "Device", real=False)
    works, reason = gpu()
    if not works:
        return reason
    cupy = import_module("cupy")
    return Target("cupy", cupy, cupy.cuda.Device().synchronize, "Cupy", real=True)


def environment(target: Target) -> dict[str, Any]:
    """Return what a later reader must know about the machine."""
    about = circumstances(device=target.name)
    if not target.real:
        return about
    runtime = target.xp.cuda.runtime
    properties = runtime.getDeviceProperties(target.xp.cuda.Device().id)
    return {
        **about,
        "device": properties["name"].decode(),
        "memory_gib": round(properties["totalGlobalMem"] / 2**30, 1),
        "compute_capability": f"{properties['major']}.{properties['minor']}",
        "cupy": target.xp.__version__,
        "driver": runtime.driverGetVersion(),
        "cuda_runtime": runtime.runtimeGetVersion(),
    }


class Report:
    """Prints findings and figures as they come, and keeps the JSON file up to date."""

    def __init__(self, about: dict[str, Any], path: str | None) -> None:
        self.about, self.path = about, path
        self.findings: list[Finding] = []
        self.timings: list[Timing] = []

    def found(self, finding: Finding) -> None:
        self.findings.append(finding)
        print(f"{finding.status:<8} {finding.name:<38} {finding.detail}", flush=True)
        self.write()

    def timed(self, timing: Timing) -> None:
        self.timings.append(timing)
        low, high = (1e3 * t for t in (timing.times.low, timing.times.high))
        print(
            f"{timing.name:<26} {timing.where:<8} {timing.value:12,.1f} {timing.unit:<9}"
            f" {low:.3g}-{high:.3g} ms",
            flush=True,
        )

    def write(self) -> None:
        if self.path:
            rows = {key: [asdict(x) for x in getattr(self, key)] for key in ("findings", "timings")}
            rows["checks"] = rows.pop("findings")
            text = json.dumps({**self.about, **rows}, indent=1) + "\n"
            Path(self.path).write_text(text, "utf-8")

    def count(self, status: str) -> int:
        return sum(finding.status == status for finding in self.findings)


def check_all(target: Target, report: Report, every: Iterable[tuple[str, Check]]) -> None:
    """Run the checks, then the timings; a timing that fails is a failed check."""
    for name, check in every:
        report.found(examine(name, lambda check=check: check(target)))
    for name, figures in timings(target):
        report.found(examine(f"timing: {name}", lambda f=figures: note(report, f())))


def note(report: Report, figures: Iterator[Timing]) -> str:
    count = 0
    for count, figure in enumerate(figures, 1):  # noqa: B007
        report.timed(figure)
    return f"{count} figures"


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fake", action="store_true", help="on the strict fake device, tiny sizes")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args(words)
    target = find_target(args.fake)
    if isinstance(target, str):
        print(f"gpu_check.py: no usable GPU here ({target}); --fake runs the checks without one")
        return 2
    report = Report(environment(target), args.json)
    print(f"# {report.about['device']}, NumPy {np.__version__}")
    check_all(target, report, checks())
    ok, failed, skipped = (report.count(s) for s in ("ok", "failed", "skipped"))
    print(f"# {ok} ok, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
