"""Opens the backend that a spec such as `openai:MODEL` names; holds `fake:`, a Python function as a model."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar

from kofn.errors import InputError, KofnError
from kofn.models.base import Model, Reply, RequestRejected, RetryableError
from kofn.registry import model

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from kofn.models.base import Prompt, Request

PASSED = ("request", "repeat", "seed", "case_id")
TOGETHER = 64  # outputs that a function of `request` may be asked for at once
# A run passes these to all its models; a backend without such a parameter ignores them instead of refusing them.
SHARED = frozenset({"device", "batch", "timeout"})

# --- `fake:module:function`, or any Python callable


class Fake(Model):
    """A Python function: fake:module:function.

    It is given the prompt: the text, or what the user said last. Parameters named `request`, `repeat`, `seed` and
    `case_id` are given those. It returns a text or a Reply; a function of `request` may return a list of `request.n` of
    them. It may be async; one that is not runs in a thread, one call at a time. An exception declines that one output.
    """

    local: ClassVar[bool] = True

    def __init__(self, spec: str) -> None:
        module, colon, function = spec.partition(":")  # the module may be a file: folder/file.py
        if not (module and colon and function):
            raise InputError(f"model 'fake:{spec}': expected fake:module:function")
        self._set_up(f"fake:{spec}", model(spec))

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Fake:
        """A function given as it is, not by name."""
        self = cls.__new__(cls)
        kind = type(function)
        module = getattr(function, "__module__", None) or kind.__module__
        name = f"fake:{module}:{getattr(function, '__qualname__', kind.__qualname__)}"
        if "<" in name:  # without a name of its own: its code tells it from the next one on the same line
            code = getattr(function, "__code__", None)
            parts = function if code is None else (code.co_code, code.co_names, [str(c) for c in code.co_consts])
            name = f"{name}#{blake2b(repr(parts).encode(), digest_size=4).hexdigest()}"
        self._set_up(name, function)
        return self

    def _set_up(self, name: str, function: Any) -> None:
        if not callable(function):
            raise InputError(f"model {name}: expected a name or a callable, not {type(function).__name__}")
        self.name, self.chat, self._function = name, False, function
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):  # built-in functions may have no signature
            self._named, self._prompted = list[str](), True
        else:  # what is given by name, and whether there is a parameter for the prompt
            self._named = [p.name for p in parameters if p.name in PASSED and p.kind is not p.POSITIONAL_ONLY]
            kinds = [p.kind for p in parameters if p.name not in self._named]
            by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
            self._prompted = any(kind in (*by_place, inspect.Parameter.VAR_POSITIONAL) for kind in kinds)
        called = getattr(function, "__call__", None)  # noqa: B004 - of an object, not whether it has one
        self._waits = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
        self.concurrency = 16 if self._waits else 1
        self.samples = TOGETHER if "request" in self._named else 1

    async def generate(self, requests: Sequence[Request]) -> AsyncIterator[Reply]:
        """One call per sample, until one gives several."""
        for place, request in enumerate(requests):
            index = 0
            while index < request.n:
                outputs = await self._call(request, index)
                if not isinstance(outputs, list | tuple):
                    outputs = [outputs]
                elif len(outputs) != request.n - index:
                    raise RequestRejected(f"{self.name} returned {len(outputs)} outputs: expected {request.n - index}")
                for output in outputs:
                    if isinstance(output, Reply):
                        yield replace(output, place=place, index=index)
                    elif isinstance(output, str):
                        yield Reply(text=output, place=place, index=index)
                    else:
                        raise RequestRejected(f"the function returned {type(output).__name__}: expected a text")
                    index += 1

    async def _call(self, request: Request, index: int) -> Any:
        seed = request.sampling.seed
        every = {
            "request": request,
            "repeat": (request.repeat or 0) + index,
            "seed": None if seed is None else seed + index,
            "case_id": request.case_id,
        }
        args = (prompt_text(request.prompt),) if self._prompted else ()
        named = {name: every[name] for name in self._named}
        try:
            if self._waits:
                return await self._function(*args, **named)
            result = await asyncio.to_thread(self._function, *args, **named)
            return await result if inspect.isawaitable(result) else result
        except (KofnError, RetryableError, RequestRejected):
            raise
        except Exception as problem:  # whatever a user's function raises becomes an error row, not a crash
            raise RequestRejected(f"{type(problem).__name__}: {problem}") from problem


def prompt_text(prompt: Prompt) -> str:
    """The text of a prompt, or what the user said last.

    >>> from kofn.models.base import Message
    >>> prompt_text((Message("system", "Be short."), Message("user", "Hi"), Message("assistant", "Hello")))
    'Hi'
    """
    if isinstance(prompt, str):
        return prompt
    return next((m.content for m in reversed(prompt) if m.role == "user"), "")


# --- by spec


def open_model(
    spec: str | Callable[..., Any] | Model, *, reproducible: bool = False, options: Mapping[str, Any] | None = None
) -> Model:
    """The backend of a spec such as "smollm2", "openai:MODEL" or "hf:PATH"; of a function; or the one given.

    `options` are keyword parameters of the backend. `device` and `batch` are left out where it has none, as is
    `reproducible`; any other that it does not take is an error. Nothing is loaded and no server is asked here.

    >>> open_model("smollm2").name, open_model(str.upper).name
    ('smollm2', 'fake:builtins:str.upper')
    """
    if isinstance(spec, Model):
        return spec
    if not isinstance(spec, str):
        return Fake.of(spec)
    prefix, _, rest = spec.strip().partition(":")
    if prefix.endswith(".py"):  # a function in a file
        return Fake(spec.strip())
    found = model(prefix)
    parameters = list(inspect.signature(found).parameters.values())
    taken = {**(options or {}), "reproducible": reproducible}
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        names = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
        for name in taken:
            if name not in names and name not in SHARED | {"reproducible"}:
                raise InputError(f"model {spec}: no option {name!r}: it takes {', '.join(names) or 'none'}")
        taken = {name: value for name, value in taken.items() if name in names}
    # most backends need to be told which model; one that does not has a default
    if not rest and parameters[0].default is inspect.Parameter.empty:
        raise InputError(f"model {prefix!r}: expected {prefix}:... : `kofn list models` shows what follows")
    made = found(rest, **taken)
    assert isinstance(made, Model)
    return made
