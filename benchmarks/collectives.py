"""All-reduce: our ring beside MPI's own, and beside gloo or NCCL where PyTorch is installed.

    minidist launch -n 4 -- benchmarks/all_reduce.py -b 1K -e 64M -f 4
    minidist launch -n 4 -- benchmarks/all_reduce.py --against gloo --json ring.json
    srun -n 8 python -m mpi4py benchmarks/all_reduce.py --device cuda --against nccl

The columns are those of nccl-tests (`table`), the sampling is explained in `timing`. `copy` is the
limit of the machine: every rank copies the array once, at the same time as all others. An
all-reduce of n ranks moves each byte through memory several times more often, so on one node,
where messages are copies, no algorithm comes near it with many ranks.

Exit status 1 if any element is wrong. Inputs are small integers, so sums are exact in any order.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from timing import Variant, interleave, tune_allocator

if "--untuned" not in sys.argv:
    tune_allocator()

import ml_dtypes
import numpy as np
from mpi4py import MPI
from mpi4py import __version__ as MPI4PY
from table import Cell, Row, circumstances, header, line, number, sizes, write_json

from minidist.arrays import Array, to_host
from minidist.collectives import ring
from minidist.comm import world
from minidist.comm.staging import Direct
from minidist.device import choose_device
from minidist.errors import ConfigError

DTYPES = {
    "float": np.float32,
    "double": np.float64,
    "half": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
}
OPS = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}


class Way(NamedTuple):
    """An all-reduce of x into out, if there is such a thing, and one in place."""

    out_of_place: Callable[[Array, Array], object] | None
    in_place: Callable[[Array], object]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-b", type=number, default=1 << 10, help="smallest size in bytes (1K)")
    parser.add_argument("-e", type=number, default=64 << 20, help="largest size (64M)")
    parser.add_argument("-f", type=int, default=4, help="factor between sizes (4)")
    parser.add_argument("-n", type=int, default=15, help="samples (15)")
    parser.add_argument("-w", type=int, default=5, help="samples before, not counted (5)")
    parser.add_argument("-d", choices=DTYPES, default="float", help="type")
    parser.add_argument("-o", choices=OPS, default="sum", help="operation")
    parser.add_argument("-c", type=int, default=1, help="check the results: 1 or 0")
    parser.add_argument("--against", choices=("gloo", "nccl"), action="append", default=[])
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="cpu")
    parser.add_argument("--share-devices", action="store_true")
    parser.add_argument("--untuned", action="store_true", help="leave the allocator as it is")
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


# --- the ways that are compared -----------------------------------------------------------------


def minidists(comm: Any, args: argparse.Namespace) -> Way:
    return Way(
        lambda x, out: ring.all_reduce(comm, x, out, op=args.o),
        lambda x: ring.all_reduce(comm, x, op=args.o),
    )


def mpis(args: argparse.Namespace) -> Way:
    """MPI's own: the library chooses the algorithm."""
    op = OPS[args.o]
    return Way(
        lambda x, out: MPI.COMM_WORLD.Allreduce(x, out, op),
        lambda x: MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, x, op),
    )


def torchs(backend: str, comm: Any, args: argparse.Namespace, device: Any) -> Way:
    """PyTorch's, which is in place only."""
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        raise ConfigError(f"--against {backend} needs PyTorch: pip install torch") from None
    if not dist.is_backend_available(backend):
        raise ConfigError(f"this PyTorch has no {backend}: leave out --against {backend}")
    if backend == "nccl" and device.kind != "cuda":
        raise ConfigError("--against nccl needs --device cuda")
    torch.set_num_threads(1)
    if device.kind == "cuda":
        torch.cuda.set_device(device.index)
    store = meeting_point(comm, dist)
    dist.init_process_group(backend, store=store, rank=comm.rank, world_size=comm.size)
    op = getattr(dist.ReduceOp, args.o.upper())
    return Way(None, lambda x: dist.all_reduce(torch.from_dlpack(x), op))


def meeting_point(comm: Any, dist: Any) -> Any:
    """Return the store at which PyTorch's ranks find each other, on a port that is free."""
    host = MPI.Get_processor_name() if comm.size > 1 else "localhost"
    store = dist.TCPStore(host, 0, comm.size, True, wait_for_workers=False) if not comm.rank else 0
    host, port = comm.bcast_object((host, store.port if store else 0))
    return store or dist.TCPStore(host, port, comm.size, False, wait_for_workers=False)


def ways(comm: Any, args: argparse.Namespace, device: Any) -> Iterator[tuple[str, Way]]:
    """Yield what is compared, and say what is left out, and why."""
    yield "minidist", minidists(comm, args)
    if args.d == "bfloat16":
        say(comm, "# MPI has no bfloat16: its own all-reduce is left out")
    elif device.kind == "cuda" and not takes_pointers(comm, device):
        say(comm, "# this MPI takes no device pointers: its own all-reduce is left out")
    else:
        yield "mpi", mpis(args)
    for backend in args.against:
        try:
            yield backend, torchs(backend, comm, args, device)
        except ConfigError as error:
            say(comm, f"# {error}")


def takes_pointers(comm: Any, device: Any) -> bool:
    return isinstance(comm.transport.staging.way(device.xp.zeros(1)), Direct)


def say(comm: Any, text: str) -> None:
    if comm.rank == 0:
        print(text, flush=True)


# --- measuring ----------------------------------------------------------------------------------


def values(rank: int, count: int, dtype: Any) -> np.ndarray:
    """The input of a rank: small integers that encode rank and index."""
    return ((np.arange(count) * 3 + rank * 7) % 8).astype(dtype)


def wrong(got: Array, comm: Any, op: str) -> int:
    """Return how many elements are wrong, on all ranks together."""
    reduce = {"sum": np.add, "max": np.maximum, "min": np.minimum}[op].reduce
    period = reduce([values(rank, 8, np.float64) for rank in range(comm.size)])
    want = np.resize(period, got.size).astype(got.dtype)
    return int(sum(comm.gather_objects(np.count_nonzero(to_host(got) != want))))


def measure(
    comm: Any, found: dict[str, Way], nbytes: int, args: argparse.Namespace, device: Any
) -> Iterator[Row]:
    """Yield a row per way, and one for the plain copy, at one size."""
    xp, dtype = device.xp, np.dtype(DTYPES[args.d])
    count = max(nbytes // dtype.itemsize, 1)
    fill = xp.asarray(values(comm.rank, count, dtype))
    x, out = fill.copy(), xp.zeros_like(fill)
    synchronise = (lambda: None) if xp is np else lambda: xp.cuda.get_current_stream().synchronize()
    calls: dict[tuple[str, str], Callable[[], object]] = {}
    for name, way in found.items():
        if way.out_of_place:
            calls[name, "out-of-place"] = lambda call=way.out_of_place: call(x, out)
        calls[name, "in-place"] = lambda call=way.in_place: call(x)
    calls["copy", "out-of-place"] = lambda: xp.copyto(out, x)

    def prepare() -> None:
        xp.copyto(x, fill)  # so that sums in place do not grow from sample to sample
        synchronise()

    def checked(key: tuple[str, str]) -> int | None:
        if not args.c or key[0] == "copy":
            return None
        prepare()
        calls[key]()
        return wrong(x if key[1] == "in-place" else out, comm, args.o)

    errors = {key: checked(key) for key in calls}
    variants = {k: Variant(prepare, lambda c=c: (c(), synchronise())) for k, c in calls.items()}
    repeats = max(1, min(20, (64 << 10) // x.nbytes))
    taken = interleave(variants, args.n, args.w, MPI.COMM_WORLD.Barrier, slowest, repeats)

    def cell(name: str, mode: str) -> Cell | None:
        factor = 1.0 if name == "copy" else 2 * (comm.size - 1) / comm.size
        times = taken.get((name, mode))
        return Cell.of(times, x.nbytes, factor, errors[name, mode]) if times else None

    for name in [*found, "copy"]:
        redop = "none" if name == "copy" else args.o
        cells = (cell(name, "out-of-place"), cell(name, "in-place"))
        yield Row(name, x.nbytes, count, args.d, redop, *cells)


def slowest(seconds: list[float]) -> list[float]:
    """Return the largest of each sample over all ranks."""
    most = np.empty(len(seconds))
    MPI.COMM_WORLD.Allreduce(np.array(seconds), most, MPI.MAX)
    return most.tolist()


def compare(rows: list[Row]) -> Iterator[str]:
    """Say how fast each way is at each size, with MPI's own as 1; beyond 1 is faster."""
    names = list(dict.fromkeys(row.variant for row in rows if row.variant not in ("mpi", "copy")))
    by = {(row.variant, row.size): row for row in rows}
    yield "# speed relative to MPI's own, out-of-place / in-place (the larger, the faster)"
    yield f"# {'size':>11}" + "".join(f"  {name:>15}" for name in names)
    for size in dict.fromkeys(row.size for row in rows):
        if theirs := by.get(("mpi", size)):
            yield f"# {size:>11}" + "".join(
                f"  {_ratio(theirs.out_of_place, by[n, size].out_of_place):>7} /"
                f"{_ratio(theirs.in_place, by[n, size].in_place):>6}"
                for n in names
            )


def _ratio(theirs: Cell | None, mine: Cell | None) -> str:
    return f"{theirs.times.median / mine.times.median:.2f}" if theirs and mine else "N/A"


def main() -> int:
    args = arguments()
    comm = world()
    device = choose_device(args.device, comm, args.share_devices)
    library = MPI.Get_library_version().splitlines()[0].strip("\0 ,")
    say(comm, f"# {comm.size} ranks on {device}, {library.split(',')[0]}")
    say(comm, f"# median of {args.n} samples in turn, time of the slowest rank; allocator "
        f"{'as it is' if args.untuned else 'keeps its memory'}")  # fmt: skip
    found = dict(ways(comm, args, device))
    say(comm, header())
    rows: list[Row] = []
    for nbytes in sizes(args.b, args.e, args.f):
        for row in measure(comm, found, nbytes, args, device):
            rows.append(row)
            say(comm, line(row))
    cells = [c for row in rows for c in (row.out_of_place, row.in_place) if c]
    bad = sum(cell.wrong or 0 for cell in cells)
    say(comm, f"# Out of bounds values : {bad} {'FAILED' if bad else 'OK'}")
    for text in compare(rows):
        say(comm, text)
    if args.json and comm.rank == 0:
        about = circumstances(ranks=comm.size, device=str(device), mpi=library, mpi4py=MPI4PY)
        write_json(args.json, about, rows)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
