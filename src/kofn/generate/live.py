"""progress.json: how far a process is, for others to look at while it goes on.

Who runs, judges or verifies writes the file once a second (pulse.py); who looks reads it, and does no more. It holds
counts, money and running estimates, never text of a model or of data. It promises nothing: it is not flushed to the
disk, what cannot be written is not, and no result depends on it. A process that is killed leaves it as it was.
"""

from __future__ import annotations

import os
import socket
import stat
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from kofn.types import Estimate

if TYPE_CHECKING:
    from pathlib import Path

NAME, VERSION = "progress.json", 1
RECENT = 60.0  # seconds without a writing, after which a process is taken for dead
LARGEST = 1 << 20  # bytes; what kofn writes has some thousand
GOING = ("running", "scoring")
STATES = (*GOING, "done", "stopped")


class Point(NamedTuple):
    """An estimate at one moment: after so many seconds, over so many cases."""

    seconds: float
    n: int
    point: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What a process says of itself. `started` and `updated` are ISO 8601, in UTC.

    kind       run, judge or verify
    state      running, scoring, done or stopped; `reason` says why it stopped
    cases, candidates   of a judge: the different outputs it is asked about, and verdicts; of `verify` both are cases
    errors, retries, tokens, cost, seconds, rate   of this start alone; `unpriced` replies are not in `cost`
    history    (seconds, cases, point, low, high) of the first estimate, as it narrowed
    """

    kind: str
    pid: int
    host: str
    started: str
    updated: str
    state: str
    reason: str | None
    task: str
    model: str
    cases_done: int
    cases_total: int
    candidates_done: int
    candidates_total: int
    reused: int
    errors: int
    retries: int
    tokens_in: int
    tokens_out: int
    cost: float
    unpriced: int
    seconds: float
    rate: float
    eta: float | None
    estimates: tuple[Estimate, ...] = ()
    history: tuple[Point, ...] = field(default=(), repr=False)

    @property
    def alive(self) -> bool:
        """Whether its process is still at it, as far as that can be told from here.

        It says that it is going, it did so within `RECENT` seconds (it does every second), and where it runs on this
        machine there is a process of its number. Of another machine's nothing more can be told.
        """
        age = datetime.now(UTC) - datetime.fromisoformat(self.updated)
        if self.state not in GOING or abs(age.total_seconds()) > RECENT:
            return False
        return self.host != socket.gethostname() or _exists(self.pid)

    @property
    def told(self) -> str:
        """How it stands, in a few words."""
        if self.state == "stopped":
            return self.reason or "stopped"
        if self.state == "done":
            return "done"
        if not self.alive:
            return "its process ended without a word: run the same command again to go on"
        return "scoring" if self.state == "scoring" else f"{self.cases_done:,} of {self.cases_total:,} cases"

    def to_dict(self) -> dict[str, Any]:
        """As the file has it."""
        return {
            "version": VERSION,
            **{name: getattr(self, name) for name in _WHO},
            "cases": {"done": self.cases_done, "total": self.cases_total},
            "candidates": {"done": self.candidates_done, "total": self.candidates_total, "reused": self.reused},
            **{name: getattr(self, name) for name in _WHAT},
            "estimates": [{name: getattr(one, name) for name in _ESTIMATE} for one in self.estimates],
            "history": [list(point) for point in self.history],
        }


# what the file holds, by type
_NUMBER, _MAYBE = (int, float), (int, float, type(None))
_WHO: dict[str, Any] = {
    "kind": str,
    "pid": int,
    **dict.fromkeys(("host", "started", "updated", "state"), str),
    "reason": (str, type(None)),
    **dict.fromkeys(("task", "model"), str),
}
_WHAT: dict[str, Any] = {
    **dict.fromkeys(("errors", "retries", "tokens_in", "tokens_out"), int),
    "cost": _NUMBER,
    "unpriced": int,
    **dict.fromkeys(("seconds", "rate"), _NUMBER),
    "eta": _MAYBE,
}
_ESTIMATE: dict[str, Any] = {
    **dict.fromkeys(("metric", "aggregator"), str),
    "point": _NUMBER,
    **dict.fromkeys(("low", "high"), _MAYBE),
    "level": _NUMBER,
    **dict.fromkeys(("n", "n_missing"), int),
    "method": str,
}
_POINT: dict[str, Any] = {"seconds": _NUMBER, "n": int, **dict.fromkeys(("point", "low", "high"), _MAYBE)}


def _exists(pid: int) -> bool:
    """Whether there is a process of this number, whoever's it is."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def read_live(directory: Path) -> Live | None:
    """What is told of the work in a directory; None where nothing is, or nothing that this kofn can read."""
    import orjson

    try:
        return _live(orjson.loads(_bytes(directory / NAME)))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _bytes(path: Path) -> bytes:
    """What a file holds. A link, a pipe or something huge is none of ours, and a pipe would be waited for."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123 - a number
        told = os.fstat(file.fileno())
        if not stat.S_ISREG(told.st_mode) or told.st_size > LARGEST:
            raise ValueError(path)
        return file.read(LARGEST)


def _live(told: Any) -> Live:
    """Raises what `read_live` takes for damage where anything is not as it is written."""
    plain = _checked(told, {**_WHO, **_WHAT})
    if _checked(told, {"version": int})["version"] != VERSION or plain["state"] not in STATES or plain["pid"] < 1:
        raise ValueError("not as this version writes it")
    for name in ("started", "updated"):
        if datetime.fromisoformat(plain[name]).tzinfo is None:
            raise ValueError(f"{name} has no time zone")
    cases = _checked(told["cases"], dict.fromkeys(("done", "total"), int))
    candidates = _checked(told["candidates"], dict.fromkeys(("done", "total", "reused"), int))
    points = (dict(zip(_POINT, point, strict=True)) for point in told["history"])
    return Live(
        **plain,
        cases_done=cases["done"],
        cases_total=cases["total"],
        candidates_done=candidates["done"],
        candidates_total=candidates["total"],
        reused=candidates["reused"],
        estimates=tuple(Estimate(**_checked(one, _ESTIMATE)) for one in told["estimates"]),
        history=tuple(Point(**_checked(point, _POINT)) for point in points),
    )


def _checked(told: Any, types: dict[str, Any]) -> dict[str, Any]:
    """These entries of an object, each of its type."""
    for name, kinds in types.items():
        if isinstance(told[name], bool) or not isinstance(told[name], kinds):
            raise TypeError(name)
    return {name: told[name] for name in types}
