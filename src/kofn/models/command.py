"""`command:PROGRAM ARGS`: a program that reads a prompt on standard input and prints an output."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from kofn.errors import InputError
from kofn.models.base import Model, Reply, RequestRejected, RetryableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from kofn.models.base import Request

LONGEST_REASON = 300


class Command(Model):
    """A program: command:PROGRAM ARGS.

    It is split as a shell would, and no shell runs it: one process an output, with KOFN_SEED, KOFN_REPEAT and KOFN_CASE
    in its environment. What it prints is the output, less one newline at the end; bytes that are no UTF-8 are replaced.
    A non-zero exit declines the output with the end of what it said on standard error. `timeout` is in seconds.
    """

    local: ClassVar[bool] = True

    def __init__(self, spec: str, *, timeout: float | None = None) -> None:
        self.name, self.timeout, self.chat = f"command:{spec}", timeout, False
        self.concurrency = os.cpu_count() or 1
        try:
            self.arguments = shlex.split(spec)
        except ValueError as problem:
            raise InputError(f"model {self.name}: {problem}") from None
        if not self.arguments or shutil.which(self.arguments[0]) is None:
            raise InputError(f"model {self.name}: there is no program {(self.arguments or [''])[0]!r} to run")

    async def generate(self, requests: Sequence[Request]) -> AsyncIterator[Reply]:
        """One process after another."""
        for place, request in enumerate(requests):
            for index in range(request.n):
                yield Reply(text=await self._run(request, index), place=place, index=index)

    def describe(self) -> dict[str, Any]:
        """The program where it was found; its arguments are in the name."""
        return {"name": self.name, "program": shutil.which(self.arguments[0])}

    async def _run(self, request: Request, index: int) -> str:
        pipe, prompt, seed = asyncio.subprocess.PIPE, request.prompt, request.sampling.seed
        named = {
            "KOFN_SEED": None if seed is None else str(seed + index),
            "KOFN_REPEAT": str((request.repeat or 0) + index),
            "KOFN_CASE": request.case_id,
        }
        kept = {name: value for name, value in os.environ.items() if name not in named}
        try:
            process = await asyncio.create_subprocess_exec(
                *self.arguments,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                env=kept | {name: value for name, value in named.items() if value is not None},
                start_new_session=True,  # so that what it starts can be ended with it
            )
        except OSError as problem:
            raise InputError(f"model {self.name}: cannot be started: {problem.strerror}") from None
        try:
            # the program reads the text, or all messages with an empty line between them
            texts = [prompt] if isinstance(prompt, str) else [message.content for message in prompt]
            exchange = process.communicate("\n\n".join(texts).encode("utf-8", "replace"))
            output, errors = await asyncio.wait_for(exchange, self.timeout)
        except TimeoutError:
            raise RetryableError(f"no output within {self.timeout:g} s") from None
        finally:  # the program and all it started: nothing is left running, whatever became of the call
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            if process.returncode is None:
                await process.wait()
        if process.returncode:
            # the reason stands at the end of what a program says
            said = " ".join(errors.decode("utf-8", "replace").split())
            said = said if len(said) <= LONGEST_REASON else "..." + said[-LONGEST_REASON:]
            raise RequestRejected(f"exit code {process.returncode}: {said}".rstrip(": "))
        return output.decode("utf-8", "replace").removesuffix("\n")
