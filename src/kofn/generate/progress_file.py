"""progress.json, by which a running process shows how far it is: its format, how it is written and how it is read.

`kofn run`, `judge` and `verify` write the file once per second, from a thread; the viewer reads it. It holds counts,
money and running estimates, never text of a model or of data. It promises nothing: it is not flushed to the disk, a
write that fails is skipped, and no result depends on it. A process that is killed leaves it as it was.
"""

from __future__ import annotations

import os
import socket
import stat
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

from kofn.core.escape import one_line
from kofn.core.progress import Snapshot
from kofn.core.system import process_exists
from kofn.core.types import Estimate
from kofn.errors import KofnError
from kofn.runs.files import remove_abandoned_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kofn.generate.calls import CallTally

NAME, VERSION = "progress.json", 1
RECENT = 60.0  # seconds without an update after which a process is taken for dead
LARGEST = 1 << 20  # bytes; what kofn writes has some thousand
# states in which the process should still be there
GOING = ("running", "scoring")
STATES = (*GOING, "done", "stopped")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressRecord:
    """What a process says of itself. `started` and `updated` are ISO 8601, in UTC.

    kind       run, judge or verify
    state      running, scoring, done or stopped; `reason` says why it stopped
    cases, candidates   of a judge: the different outputs it is asked about, and verdicts; of `verify` both are cases
    errors, retries, tokens, cost, seconds, rate   of this start alone; `unpriced` replies are not in `cost`
    history    the first estimate as it narrowed, after so many seconds each
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
    history: tuple[tuple[float, Estimate], ...] = field(default=(), repr=False)

    @property
    def alive(self) -> bool:
        """Whether its process is still at work, as far as can be seen from here.

        The file says so, it was updated within `RECENT` seconds (a process does every second), and if it was written
        on this machine a process with that id exists. For another machine the id cannot be checked.
        """
        age = datetime.now(UTC) - datetime.fromisoformat(self.updated)
        if self.state not in GOING or abs(age.total_seconds()) > RECENT:
            return False
        return self.host != socket.gethostname() or process_exists(self.pid)

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
            "history": [[seconds, one.n, one.point, one.low, one.high] for seconds, one in self.history],
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


def read_progress(directory: Path) -> ProgressRecord | None:
    """The progress file of a directory; None where there is none, or none that this kofn can read."""
    import orjson

    try:
        # links, pipes and huge files are refused: opening a pipe would block for ever
        number = os.open(directory / NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(number, "rb") as file:  # noqa: PTH123 - a number
            status = os.fstat(number)
            regular = stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST
            return _parse_record(orjson.loads(file.read(LARGEST))) if regular else None
    except (OSError, ValueError, TypeError, LookupError):
        return None


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
    estimates = tuple(Estimate(**_check_types(one, _ESTIMATE)) for one in data["estimates"])
    points = [_check_types(dict(zip(_POINT, point, strict=True)), _POINT) for point in data["history"]]
    return ProgressRecord(
        **plain,
        **{f"cases_{name}": number for name, number in cases.items()},
        **{f"candidates_{name}": candidates[name] for name in ("done", "total")},
        reused=candidates["reused"],
        estimates=estimates,
        history=tuple((point.pop("seconds"), replace(estimates[0], **point)) for point in points),
    )


def _check_types(data: Any, types: dict[str, Any]) -> dict[str, Any]:
    """These entries of an object, each of its type."""
    for name, kinds in types.items():
        if isinstance(data[name], bool) or not isinstance(data[name], kinds):
            raise TypeError(name)
    return {name: data[name] for name in types}


# what a tally, a snapshot and a record call alike
_SPENT = ("errors", "retries", "tokens_in", "tokens_out", "cost", "unpriced")
_COUNTED = ("reused", *_SPENT, "estimates")
EVERY = 1.0  # seconds from one writing to the next
MOST = 120  # points of a history


def snapshot_of(tally: CallTally, cases: int, candidates: int, seconds: float, *, stages: int = 1) -> Snapshot:
    """How far a run of so many cases and candidates is; a candidate that was asked twice counts once."""
    done = min(tally.candidates, candidates)
    return Snapshot(
        done=done,
        total=candidates,
        seconds=seconds,
        reused=min(done, tally.reused // stages),
        cases_done=min(tally.cases, cases),
        cases_total=cases,
        **{name: getattr(tally, name) for name in _SPENT},
    )


class ProgressWriter:
    """Keeps `progress.json` of a directory fresh: `with ProgressWriter(directory, ...): ...`, and says how it ended.

    A thread of its own writes, so that the file is fresh however long one step takes. `look` gives the numbers, and is
    called in that thread. Left well the file says "done", or "stopped" after `stop`; left by an error "stopped" and
    why. With keep=False it is removed when all is done: for a directory that holds runs and is none itself.
    """

    def __init__(
        self, directory: Path, look: Callable[[], Snapshot], *, kind: str, task: str, model: str, keep: bool = True
    ) -> None:
        self.path = directory / NAME
        self._look, self._keep = look, keep
        self._about: dict[str, Any] = {"kind": kind, "task": _plain_text(task), "model": _plain_text(model)}
        self._started, self._began = _now(), time.monotonic()
        self._state = "running"
        self._reason: str | None = None
        self._last: Snapshot | None = None  # the final numbers, once all calls are done
        self.history: list[tuple[float, Estimate]] = []
        self._apart = 0.0  # seconds between two points of the history, at least
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kofn progress", daemon=True)

    def mark_scoring(self) -> None:
        """All calls are done; what is left is scoring."""
        self._last, self._state = self._look(), "scoring"

    def stop(self, reason: str | None) -> None:
        """It will end before everything is done, for this reason; None: it will not."""
        self._reason = reason

    def remember(self, seconds: float, estimate: Estimate) -> None:
        """Add the newest point of the history. It replaces the one before if that came too soon after its predecessor.

        So at most `MOST` are kept: the first, the newest, and some between that lie about equally apart.
        """
        if len(self.history) > 1 and seconds - self.history[-2][0] < self._apart:
            self.history.pop()
        self.history.append((seconds, estimate))
        if len(self.history) > MOST:
            # every other point goes, and from now on points must be as far apart as those that are left
            self.history = [*self.history[:-1:2], self.history[-1]]
            self._apart = (self.history[-1][0] - self.history[0][0]) / len(self.history)

    def __enter__(self) -> Self:
        remove_abandoned_files(self.path.parent, NAME)
        self._write()
        self._thread.start()
        return self

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        self._ended.set()
        self._thread.join()
        if problem is not None:
            self._reason = reason_of(problem)
        self._state = "done" if self._reason is None else "stopped"
        if self._state == "done" and not self._keep:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)
        else:
            self._write()

    def _run(self) -> None:
        while not self._ended.wait(EVERY):
            self._write()

    def _write(self) -> None:
        """Write under another name, then rename: a reader sees the old file or the new one."""
        import orjson

        partial = self.path.with_name(f".{NAME}.{os.getpid()}.tmp")
        with suppress(OSError, TypeError, ValueError):  # a disk that is full; a number that no JSON holds
            try:
                partial.write_bytes(orjson.dumps(self._record().to_dict()))
                partial.replace(self.path)
            except OSError:
                partial.unlink(missing_ok=True)

    def _record(self) -> ProgressRecord:
        now, state = self._last or self._look(), self._state
        seconds = round(time.monotonic() - self._began, 3)
        if now.estimates and (not self.history or self.history[-1][1].n != now.estimates[0].n):
            self.remember(seconds, now.estimates[0])
        return ProgressRecord(
            **self._about,
            pid=os.getpid(),
            host=socket.gethostname(),
            started=self._started,
            updated=_now(),
            state=state,
            reason=self._reason if state == "stopped" else None,
            cases_done=now.cases_done,
            cases_total=now.cases_total,
            candidates_done=now.done,
            candidates_total=now.total,
            **{name: getattr(now, name) for name in _COUNTED},
            seconds=seconds,
            rate=round(now.rate, 3),
            eta=now.eta if state == "running" else None,
            history=tuple(self.history),
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _plain_text(name: str) -> str:
    """A name that any file can hold: a command line may pass bytes that are not UTF-8."""
    return name.encode(errors="backslashreplace").decode()


def reason_of(problem: BaseException) -> str:
    """Why something ended, on one line: the message of an error of kofn's own; of any other only its type.

    >>> reason_of(KofnError("the disk\\nis full")), reason_of(KeyboardInterrupt()), reason_of(KeyError("secret"))
    ('the disk is full', 'interrupted', 'KeyError')
    """
    from asyncio import CancelledError

    if isinstance(problem, KofnError):
        return _plain_text(one_line(str(problem)) or type(problem).__name__)
    return "interrupted" if isinstance(problem, KeyboardInterrupt | CancelledError) else type(problem).__name__
