"""The format of progress.json, by which a running process shows how far it is, and how the file is read.

`kofn run`, `judge` and `verify` write the file once per second (progress_writer.py); the viewer reads it. It holds
counts, money and running estimates, never text of a model or of data. It promises nothing: it is not flushed to the
disk, a write that fails is skipped, and no result depends on it. A process that is killed leaves it as it was.
"""

from __future__ import annotations

import os
import socket
import stat
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from kofn.core.types import Estimate

if TYPE_CHECKING:
    from pathlib import Path

NAME, VERSION = "progress.json", 1
RECENT = 60.0  # seconds without an update after which a process is taken for dead
LARGEST = 1 << 20  # bytes; what kofn writes has some thousand
# states in which the process should still be there
GOING = ("running", "scoring")
STATES = (*GOING, "done", "stopped")


class ProgressPoint(NamedTuple):
    """An estimate at one moment: after so many seconds, over so many cases."""

    seconds: float
    n: int
    point: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressRecord:
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
    history: tuple[ProgressPoint, ...] = field(default=(), repr=False)

    @property
    def alive(self) -> bool:
        """Whether its process is still at work, as far as can be seen from here.

        The file says so, it was updated within `RECENT` seconds (a process does every second), and if it was written
        on this machine a process with that id exists. For another machine the id cannot be checked.
        """
        age = datetime.now(UTC) - datetime.fromisoformat(self.updated)
        if self.state not in GOING or abs(age.total_seconds()) > RECENT:
            return False
        return self.host != socket.gethostname() or _exists(self.pid)

    @property
    def summary(self) -> str:
        """The state in a few words."""
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
    """Whether a process with this id exists, whoever owns it."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def read_progress(directory: Path) -> ProgressRecord | None:
    """The progress file of a directory; None where there is none, or none that this kofn can read."""
    import orjson

    try:
        return _parse_record(orjson.loads(_bytes(directory / NAME)))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _bytes(path: Path) -> bytes:
    """The content of the file. Links, pipes and huge files are refused: opening a pipe would block for ever."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123 - a number
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
            raise ValueError(path)
        return file.read(LARGEST)


def _parse_record(data: Any) -> ProgressRecord:
    """Raises what `read_progress` takes for damage where anything is not as it is written."""
    plain = _check_types(data, {**_WHO, **_WHAT})
    if _check_types(data, {"version": int})["version"] != VERSION or plain["state"] not in STATES or plain["pid"] < 1:
        raise ValueError("not as this version writes it")
    for name in ("started", "updated"):
        if datetime.fromisoformat(plain[name]).tzinfo is None:
            raise ValueError(f"{name} has no time zone")
    cases = _check_types(data["cases"], dict.fromkeys(("done", "total"), int))
    candidates = _check_types(data["candidates"], dict.fromkeys(("done", "total", "reused"), int))
    points = (dict(zip(_POINT, point, strict=True)) for point in data["history"])
    return ProgressRecord(
        **plain,
        cases_done=cases["done"],
        cases_total=cases["total"],
        candidates_done=candidates["done"],
        candidates_total=candidates["total"],
        reused=candidates["reused"],
        estimates=tuple(Estimate(**_check_types(one, _ESTIMATE)) for one in data["estimates"]),
        history=tuple(ProgressPoint(**_check_types(point, _POINT)) for point in points),
    )


def _check_types(data: Any, types: dict[str, Any]) -> dict[str, Any]:
    """These entries of an object, each of its type."""
    for name, kinds in types.items():
        if isinstance(data[name], bool) or not isinstance(data[name], kinds):
            raise TypeError(name)
    return {name: data[name] for name in types}
