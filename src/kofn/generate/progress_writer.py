"""Writes progress.json once per second from a thread; a write that fails is skipped."""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

from kofn.core.escape import one_line
from kofn.errors import KofnError
from kofn.generate.progress_file import NAME, ProgressPoint, ProgressRecord
from kofn.runs.staging import remove_abandoned_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kofn.generate.progress_line import Snapshot

EVERY = 1.0  # seconds from one writing to the next
MOST = 120  # points of a history


@dataclass(slots=True)
class ProgressHistory:
    """At most `MOST` points of an estimate: the first, the newest, and some between that lie about equally apart."""

    points: list[ProgressPoint] = field(default_factory=list)
    _apart: float = 0.0

    def add(self, point: ProgressPoint) -> None:
        """Add the newest point. It replaces the one before it if that came too soon after its own predecessor."""
        if len(self.points) > 1 and point.seconds - self.points[-2].seconds < self._apart:
            self.points[-1] = point
        else:
            self.points.append(point)
        if len(self.points) > MOST:
            # every other point goes, and from now on points must be as far apart as those that are left
            self.points = [*self.points[:-1:2], self.points[-1]]
            self._apart = (self.points[-1].seconds - self.points[0].seconds) / len(self.points)


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
        self._about = {"kind": kind, "task": _plain_text(task), "model": _plain_text(model)}
        self._started, self._began = _now(), time.monotonic()
        self._state = "running"
        self._reason: str | None = None
        self._last: Snapshot | None = None  # the final numbers, once all calls are done
        self._history = ProgressHistory()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kofn progress", daemon=True)

    def mark_scoring(self) -> None:
        """All calls are done; what is left is scoring."""
        self._last, self._state = self._look(), "scoring"

    def stop(self, reason: str | None) -> None:
        """It will end before everything is done, for this reason; None: it will not."""
        self._reason = reason

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
        for one in now.estimates[:1]:
            if not self._history.points or self._history.points[-1].n != one.n:
                self._history.add(ProgressPoint(seconds, one.n, one.point, one.low, one.high))
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
            reused=now.reused,
            errors=now.errors,
            retries=now.retries,
            tokens_in=now.tokens_in,
            tokens_out=now.tokens_out,
            cost=now.cost,
            unpriced=now.unpriced,
            seconds=seconds,
            rate=round(now.rate, 3),
            eta=now.eta if state == "running" else None,
            estimates=now.estimates,
            history=tuple(self._history.points),
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
