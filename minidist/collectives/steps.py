"""A collective has one body: a generator that yields its exchanges.

    @Collective
    def shift(comm, x, out):
        yield Exchange(comm, x, to=(comm.rank + 1) % comm.size, recv=out, source=...)
        return out

The body says what to send and receive, and computes between the exchanges; it never calls anything
that blocks. Whoever drives it decides how to wait:

    shift(comm, x, out)                  drives it to the end: an ordinary blocking call
    shift.start(comm, x, out)            a collective in flight, polled between computations
    yield from shift.steps(comm, ...)    a part of a larger body
    simulate(shift, 1000, arguments)     a thousand bodies without ranks (`collectives.simulate`)

Real libraries write each collective two or three times over (MPI_Allreduce, MPI_Iallreduce, and
NCCL's kernels); here the same few lines serve all four uses.
"""

import inspect
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeAlias

from minidist.arrays import Array
from minidist.comm.base import Comm, Request
from minidist.errors import ConfigError


class Exchange(NamedTuple):
    """Send ``send`` to rank ``to`` and receive into ``recv`` from rank ``source``, at once.

    Either half may be left out. ``meanwhile`` is work that does not need these messages: it is done
    once they are on their way, and before they are waited for, and leaves ``send`` and ``recv``
    alone.
    """

    comm: Comm
    send: Array | None = None
    to: int | None = None
    recv: Array | None = None
    source: int | None = None
    meanwhile: Callable[[], object] | None = None

    def post(self) -> Sequence[Request]:
        """Start both halves, do the work, and return the open requests."""
        requests = []
        if self.recv is not None and self.source is not None:
            requests.append(self.comm.irecv(self.recv, self.source))
        if self.send is not None and self.to is not None:
            requests.append(self.comm.isend(self.send, self.to))
        if self.meanwhile is not None:
            self.meanwhile()
        return requests


EQUAL = {"op": "sum", "root": 0}
"""Arguments that must be equal on all ranks, and their defaults, which are not worth a word."""

Steps: TypeAlias = Generator[Exchange, None, Any]


def _exchange(yielded: object, comm: Comm, steps: Steps) -> Exchange:
    """Return what a body has yielded, if it can be driven."""
    if isinstance(yielded, Exchange):
        return yielded
    raise ConfigError(
        f"rank {comm.rank}, {getattr(steps, '__name__', '?')}: a body yields Exchange(comm, ...) "
        f"and nothing else; this yield gives {yielded!r}"
    )


class Started:
    """A collective in flight. It moves on in `poll`, and in every blocking wait of its rank.

    It asks every request, hence the lists: one that is complete but was never asked would keep a
    wait spinning.
    """

    def __init__(self, steps: Steps, comm: Comm) -> None:
        self.steps, self.comm = steps, comm
        self.requests: Sequence[Request] = ()
        self.done = False
        self.result: Any = None
        comm.state.started.append(self)
        self.advance()

    def poll(self) -> bool:
        """Go as far as the messages that have arrived allow; say whether all is done."""
        while not self.done and not [r for r in self.requests if not r.test()]:
            self._next()
        return self.done

    def advance(self) -> None:
        """The same in a wait that has just been woken, which needs no test that gives way."""
        while not self.done and not [r for r in self.requests if not r.finish()]:
            self._next()

    def wait(self) -> Any:
        """Block until the collective is complete and return its result."""
        while not self.done:
            self.comm.wait_all([r for r in self.requests if not r.done])
            self.advance()
        return self.result

    def _next(self) -> None:
        try:
            self.requests = _exchange(next(self.steps), self.comm, self.steps).post()
        except StopIteration as end:
            self.done, self.result, self.requests = True, end.value, ()
            self.comm.state.started.remove(self)
        except BaseException:
            self.comm.state.started.remove(self)
            raise


def wait_all(started: Sequence[Started]) -> list[Any]:
    """Block until all of these are complete, in whatever order they finish; return the results."""
    return [s.wait() for s in started]


class Collective:
    """Makes a body callable: blocking, started, or as steps of another body."""

    def __init__(self, steps: Callable[..., Steps]) -> None:
        self.steps = self.__wrapped__ = steps
        self.__name__, self.__doc__ = steps.__name__, steps.__doc__
        names = list(inspect.signature(steps).parameters)[1:]  # without the communicator
        self._equal = {name: names.index(name) for name in EQUAL if name in names}
        package, _, module = steps.__module__.rpartition(".")
        self._algorithm = module if package and module != steps.__name__ else ""

    def __call__(self, comm: Comm, *args: Any, label: str = "", **options: Any) -> Any:
        """Drive the body to its end and return its result. All ranks of ``comm`` call it."""
        steps = self._body(comm, label, args, options)
        while True:
            try:
                yielded = next(steps)
            except StopIteration as end:
                return end.value
            try:
                e = _exchange(yielded, comm, steps)
                if e.meanwhile is None:
                    e.comm.exchange(e.send, e.to, e.recv, e.source)
                else:
                    e.comm.wait_all(e.post())
            except Exception as error:
                steps.throw(error)  # at its yield, so that the traceback shows who asked for it
                raise

    def start(self, comm: Comm, *args: Any, label: str = "", **options: Any) -> Started:
        """Start the collective and return it in flight; leave its arrays alone until it is done."""
        return Started(self._body(comm, label, args, options), comm)

    def _body(self, comm: Comm, label: str, args: Sequence[Any], options: Any) -> Steps:
        channel = self._channel(comm, label, args, options)
        steps = self.steps(channel, *args, **options)
        if not hasattr(steps, "throw"):
            raise ConfigError(
                f"{channel.at('start')}: the body of a collective is a generator; this one has no "
                "yield Exchange(...), not even in a branch that is not taken"
            )
        return steps

    def _channel(self, comm: Comm, label: str, args: Sequence[Any], options: Any) -> Comm:
        """Take a channel whose label also tells the algorithm, and what must be equal on all ranks.

        So ranks that come with another reduction or root, or with a tree where others come with a
        ring, are found out like ranks in another operation.
        """
        named = [self._algorithm, label]
        for name, place in self._equal.items():
            value = args[place] if len(args) > place else options.get(name, EQUAL[name])
            if value != EQUAL[name]:
                named.append(f"{name} {value}")
        return comm.channel(self.__name__, ", ".join(filter(None, named)))
