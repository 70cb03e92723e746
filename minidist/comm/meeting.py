"""Control among in-process ranks: everybody brings one object and leaves with all of them."""

import pickle
from typing import Any

from minidist.comm.base import Comm, Request
from minidist.errors import MismatchError


class Meeting:
    """One control operation of ``size`` ranks, under way."""

    def __init__(self, op: str, where: str, size: int) -> None:
        self.op, self.where, self.size = op, where, size
        self.brought: dict[int, bytes] = {}
        self.time = 0.0

    def bring(self, rank: int, op: str, value: object, time: float) -> None:
        """Add a rank's object. Pickled, as between processes, so that nobody shares it."""
        if op != self.op:
            raise MismatchError(
                f"rank {rank} calls {op} where rank {min(self.brought)} calls {self.op} of "
                f"{self.where}; all ranks must make the same calls in the same order"
            )
        self.brought[rank] = pickle.dumps(value)
        self.time = max(self.time, time)

    def ready(self) -> float | None:
        """The time at which the last rank came, or None while somebody is missing."""
        return self.time if len(self.brought) == self.size else None

    def missing(self) -> list[str]:
        """For people: who is not there yet."""
        absent = [str(r) for r in range(self.size) if r not in self.brought]
        return [f"{self.op} of {self.where}, which ranks {', '.join(absent)} have not entered"]

    def objects(self) -> list[Any]:
        """What the ranks brought, by rank, as copies."""
        return [pickle.loads(self.brought[r]) for r in range(self.size)]


class Attendance(Request):
    """A rank's wait for the others, as a request, so that its collectives go on meanwhile."""

    def __init__(self, comm: Comm, meeting: Meeting) -> None:
        super().__init__(comm, meeting.op, comm.rank, 0)
        self.meeting = meeting

    def complete_at(self) -> float | None:
        """The time at which the last rank came; None while nobody can know."""
        return self.meeting.ready()

    def test(self) -> bool:
        """Say whether all ranks are here."""
        return self.finish()

    def finish(self) -> bool:
        """Complete the wait if this rank's clock has reached its time."""
        at = self.complete_at()
        self.done = at is not None and at <= self.comm.time
        return self.done

    def __str__(self) -> str:
        return "; ".join(self.meeting.missing())
