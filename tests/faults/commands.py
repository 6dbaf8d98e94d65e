"""The real command line in a process that starts in a moment, and what it does to a folder.

A process is forked from one that has everything imported, so that it can be killed two hundred times in minutes. What
it runs is `kofn.cli.main`, as the program does.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

LOADED = (
    *(
        "kofn.cli.run_verb",
        "kofn.cli.judge_verbs",
        "kofn.cli.verify_verb",
        "kofn.cli.report_verb",
        "kofn.cli.score_verb",
    ),
    *(
        "kofn.generate",
        "kofn.judge",
        "kofn.problems.verification",
        "kofn.problems.verification_runs",
        "kofn.render.page",
        "kofn.api",
    ),
    *("kofn.scoring.evaluate", "kofn.models.openai", "kofn.generate.run", "kofn.runs.files", "kofn.runs.record"),
    *(
        "kofn.generate.store",
        "kofn.generate.runner",
        "kofn.judge.judge_run",
        "kofn.runs.load",
        "kofn.runs.report_builder",
    ),
    *("aiohttp", "jinja2", "polars", "scipy.special", "yaml", "tests.faults.commands"),
)
LONGEST = 240.0  # seconds of one command, however busy the machine is
KOFN = [sys.executable, "-m", "kofn"]


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The one line it said on standard error: nothing else is there, and no traceback."""
        lines = [line for line in self.err.splitlines() if line]
        assert len(lines) == 1, self.err
        assert lines[0].startswith("kofn: "), self.err
        return lines[0]


def environment(**more: str) -> dict[str, str]:
    """Ours without keys."""
    return {**{k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")}, **more}


def kofn(*words: object, cwd: Path, **more: str) -> Ended:
    """The program itself, from its start to its end."""
    done = subprocess.run(
        [*KOFN, *map(str, words)], cwd=cwd, capture_output=True, text=True, timeout=LONGEST, env=environment(**more)
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def _main(words: list[str], cwd: str, said: str) -> None:
    from kofn.cli import main

    os.setsid()  # so that nothing it starts is left behind
    os.chdir(cwd)
    for number in (1, 2):
        os.dup2(os.open(f"{said}.{number}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["kofn", *words]
    main()


class Forked:
    """Starts commands; `folder` holds what they say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(list(LOADED))

    def start(self, *words: object, cwd: Path):
        process = self.context.Process(
            target=_main, args=([str(word) for word in words], str(cwd), str(self.folder / "said"))
        )
        process.start()
        return process

    def ended(self, process) -> Ended:
        process.join(LONGEST)
        assert process.exitcode is not None
        out, err = ((self.folder / f"said.{n}").read_text() for n in (1, 2))
        return Ended(process.exitcode, out, err)

    def __call__(self, *words: object, cwd: Path) -> Ended:
        return self.ended(self.start(*words, cwd=cwd))

    def killed(self, seconds: float, *words: object, cwd: Path) -> int:
        """Start, kill -9 after so many seconds, and how it ended: -9, or by itself before."""
        process = self.start(*words, cwd=cwd)
        process.join(seconds)
        if process.exitcode is None:
            process.kill()
        process.join()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        return process.exitcode

    def seconds(self, *words: object, cwd: Path) -> float:
        """How long a command takes that nobody disturbs."""
        began = time.monotonic()
        done = self(*words, cwd=cwd)
        assert done.code == 0, done.err
        return time.monotonic() - began
