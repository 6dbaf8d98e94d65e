"""Functions with tests: data sets such as HumanEval, and the metric `runs_tests`.

A program is what was to be completed, the completion and its tests, run in one process in the sandbox. It passes when
the tests come to their end: not by its exit status, which any program can choose, but by a word that is said after
them. Tests and program share a process, so a program written to deceive this very harness can; the published
evaluators are no different. A checkpoint's expected answers never enter the sandbox: use one where that matters.
"""

from __future__ import annotations

import gzip
import json
import re
import textwrap
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from kofn.checkpoint.programs import SECONDS, Program, Ran, Shared, run_program
from kofn.checkpoint.sandbox import INSTALL, find, missing_programs
from kofn.checkpoint.work import Limits
from kofn.errors import InputError
from kofn.metrics.base import Metric, references_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from kofn.checkpoint.sandbox import Sandbox
    from kofn.engine.base import Engine

LIMITS = Limits(seconds=SECONDS)
KEYS = ("prompt", "entry_point", "test")
_FENCE = re.compile(r"```[ \t]*(?:python|py|python3)?[ \t]*\r?\n(.*?)(?:\r?\n```|\Z)", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A function to complete and the tests it must pass."""

    id: str
    prompt: str
    entry_point: str
    test: str

    def program(self, completion: str) -> str:
        """The program that is run: the published form, prompt + completion, then the tests."""
        return f"{self.prompt}{completion}\n{self.test}\ncheck({self.entry_point})\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A completion of a task."""

    task_id: str
    completion: str


def run_programs(
    programs: Sequence[Program | None],
    *,
    sandbox: Sandbox,
    engine: Engine,
    known: dict[str, Ran] | None = None,
    on_ran: Callable[[str, Ran], None] | None = None,
    limits: Limits = LIMITS,
) -> list[Ran | None]:
    """What came of every program, in order; equal programs are run once, and those in `known` not at all."""
    from kofn.checkpoint.scratch import scratch_folder
    from kofn.engine.base import Failed

    found = {} if known is None else known
    keys = [None if p is None else p.key(sandbox) for p in programs]
    todo = {k: p for k, p in zip(keys, programs, strict=True) if k is not None and p is not None and k not in found}
    names = list(todo)

    def keep(index: int, came: Any) -> None:
        ran = Ran(passed=None, reason=came.reason) if isinstance(came, Failed) else came
        found[names[index]] = ran
        if on_ran is not None:
            on_ran(names[index], ran)

    with scratch_folder() as scratch:
        shared = Shared(sandbox=sandbox, limits=limits, scratch=scratch)
        engine.map(run_program, list(todo.values()), shared=shared, on_done=keep)
    return [None if key is None else found[key] for key in keys]


def read_tasks(path: Path) -> dict[str, Task]:
    """The tasks of a data set, by id."""
    found: dict[str, Task] = {}
    for where, row in _rows(path):
        missing = [key for key in ("task_id", *KEYS) if not isinstance(row.get(key), str)]
        if missing:
            raise InputError(f"{where}: {missing[0]}: expected text; a task has task_id, prompt, entry_point and test")
        task = Task(id=row["task_id"], **{key: row[key] for key in KEYS})
        if not task.entry_point.isidentifier():
            raise InputError(f"{where}: entry_point: {task.entry_point!r} is not the name of a function")
        if task.id in found:
            raise InputError(f"{where}: task {task.id!r} is there twice")
        found[task.id] = task
    if not found:
        raise InputError(f"{path}: there is no task in it")
    return found


def read_samples(paths: Iterable[Path], tasks: Mapping[str, Task]) -> list[Sample]:
    """The samples of files, in order; one of a task that the data set does not have is refused."""
    from kofn.errors import UnknownName

    found = []
    for path in paths:
        for where, row in _rows(path):
            for key in ("task_id", "completion"):
                if not isinstance(row.get(key), str):
                    raise InputError(f"{where}: {key}: expected text; a sample has task_id and completion")
            if row["task_id"] not in tasks:
                raise InputError(f"{where}: {UnknownName('task', row['task_id'], list(tasks), 'not in the data set')}")
            found.append(Sample(task_id=row["task_id"], completion=row["completion"]))
    if not found:
        raise InputError(f"{', '.join(map(str, paths))}: there is no sample in it")
    return found


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield f"{path}: line {number}", _object(line, f"{path}: line {number}")
    except (OSError, EOFError, UnicodeDecodeError) as problem:
        raise InputError(f"{path}: cannot be read: {getattr(problem, 'strerror', None) or problem}") from None


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as problem:
        raise InputError(f"{where}: not JSON: {problem.msg}, at column {problem.colno}") from None
    except RecursionError:
        raise InputError(f"{where}: not JSON that can be read: it is nested too deeply") from None
    if not isinstance(row, dict):
        raise InputError(f"{where}: expected an object, found {type(row).__name__}")
    return row


def program_of(output: str, reference: object) -> str:
    """A model's output and its tests as one program.

    `reference` is Python that tests what the output defines, or an object (or its JSON) with `test` and optionally
    `entry_point` and `prompt`. Of an output with code blocks the code is taken. Where the prompt's function is defined
    in it, it stands after what the prompt has before that function; else it is taken to go on where the prompt ends,
    indented where it is not.

    >>> task = {"prompt": "def one():\\n", "entry_point": "one", "test": "def check(f):\\n    assert f() == 1"}
    >>> print(program_of("    return 1", task))
    def one():
        return 1
    def check(f):
        assert f() == 1
    check(one)
    <BLANKLINE>
    """
    tests = _tests(reference)
    if tests is None:
        return f"{code_of(output)}\n{reference}\n"
    prompt, entry, test = (str(tests.get(key) or "") for key in KEYS)
    call = f"check({entry})\n" if entry else ""
    return f"{_joined(prompt, code_of(output), entry)}\n{test}\n{call}"


def _tests(reference: object) -> Mapping[str, Any] | None:
    from collections.abc import Mapping as AnyMapping

    if isinstance(reference, AnyMapping):
        found: Any = reference
    else:
        try:
            found = json.loads(str(reference))
        except json.JSONDecodeError:
            return None
    if not isinstance(found, AnyMapping):
        return None
    if not isinstance(found.get("test"), str):
        raise InputError("runs_tests: the reference has no `test`: expected Python, or test, entry_point and prompt")
    return found


def code_of(output: str) -> str:
    """The code in an output: its code blocks, or all of it.

    >>> code_of("Here:\\n```python\\nx = 1\\n```\\nand that is it.")
    'x = 1'
    """
    blocks = _FENCE.findall(output)
    return "\n\n".join(blocks) if blocks else output


def _joined(prompt: str, code: str, entry: str) -> str:
    """The prompt and the code, in whichever way they fit."""
    if not prompt:
        return code
    if entry and re.search(rf"^(?:async\s+)?def\s+{re.escape(entry)}\s*\(", textwrap.dedent(code), re.MULTILINE):
        return f"{_before(prompt, entry)}\n{textwrap.dedent(code)}"
    indented = next((line for line in code.splitlines() if line.strip()), "")[:1].isspace()
    return f"{prompt}{code if indented else textwrap.indent(code, '    ')}"


def _before(prompt: str, entry: str) -> str:
    """What a prompt has before its function: imports and helpers."""
    found = re.search(rf"^(?:async\s+)?def\s+{re.escape(entry)}\s*\(", prompt, re.MULTILINE)
    return prompt[: found.start()] if found else prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsTests(Metric):
    """1 when the output is a program that passes its tests, run in a sandbox, else 0.

    The reference is the tests: Python that is run after the output, or an object with `test`, `entry_point` and
    `prompt` as in HumanEval. Needs bubblewrap, unless `unsafe` is true.
    """

    uses: ClassVar[Literal["answer", "text"]] = "text"
    heavy: ClassVar[bool] = True
    reference_is: ClassVar[str] = "give the tests as `reference`: Python, or an object of prompt, entry_point and test"
    extractor: ClassVar[str] = "none"

    timeout: float = SECONDS
    unsafe: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.timeout <= 3600:
            raise InputError(f"runs_tests: timeout is {self.timeout}: expected seconds above 0")
        if not self.unsafe and (missing := missing_programs()):
            raise InputError(f"runs_tests runs programs in a sandbox, and {missing[0]} is not here: {INSTALL}")

    def __call__(self, prediction: object, reference: object) -> float | None:
        return self.many([prediction], [reference])[0]

    def many(
        self, predictions: Sequence[object], references: Sequence[object], engine: Engine | None = None
    ) -> list[float | None]:
        """The scores of many at once, on the engine or on all cores; of several references the best counts."""
        from kofn.engine import engine as make

        pairs = [
            (i, p, r) for i, (p, rs) in enumerate(zip(predictions, references, strict=True)) for r in references_of(rs)
        ]
        programs = [
            None if p is None else Program(text=program_of(str(p), r), seconds=self.timeout) for _, p, r in pairs
        ]
        with make("local") if engine is None else nullcontext(engine) as used:
            ran = run_programs(programs, sandbox=find(unsafe=self.unsafe), engine=used)
        scores: list[float | None] = [None] * len(predictions)
        for (i, _, _), one in zip(pairs, ran, strict=True):
            value = 0.0 if one is None else None if one.passed is None else float(one.passed)
            scores[i] = value if scores[i] is None else max(scores[i] or 0.0, value or 0.0)
        return scores
