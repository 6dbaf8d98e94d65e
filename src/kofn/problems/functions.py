"""Data sets of functions with tests, such as HumanEval: samples run, stored and reported; and the metric `runs_tests`.

A program is the prompt, its completion and the tests, run in one process in the sandbox. It passes when the tests come
to their end: not by its exit status, which any program can choose, but by a random word that is printed after them.
Tests and program share a process, so a program written to deceive this very harness can; the published evaluators are
no different. A checkpoint's expected answers never enter the sandbox: use one where that matters.
"""

from __future__ import annotations

import gzip
import json
import re
import textwrap
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import polars as pl

from kofn.core.document import Displayable
from kofn.core.escape import escape_controls
from kofn.errors import InputError, UnknownName
from kofn.importers.base import ReadOptions
from kofn.metrics.base import Metric, references_of
from kofn.parallel import engine as make_engine
from kofn.parallel.base import FailedItem
from kofn.problems.case import CaseOutcome, WorkContext
from kofn.problems.case_store import CaseStore, ExecutionCount, write_progress
from kofn.problems.execution import SECONDS, Program, run_program
from kofn.problems.verification_runs import EXECUTIONS
from kofn.render.run_directory import write_run
from kofn.runs.load import load_table
from kofn.sandbox.bubblewrap import INSTALL_COMMAND, missing_programs
from kofn.sandbox.drivers import find_sandbox
from kofn.sandbox.process import ProgramLimits
from kofn.sandbox.workspace import scratch_folder
from kofn.scoring.configuration import GradingConfig, ReportConfig
from kofn.scoring.evaluate import evaluate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from kofn.core.document import Document
    from kofn.parallel.base import ParallelEngine
    from kofn.runs.record import Run
    from kofn.sandbox.base import Sandbox
    from kofn.scoring.configuration import PassPolicy
    from kofn.scoring.result import ScoredResult

KEYS = ("prompt", "entry_point", "test")
_FENCE = re.compile(r"```[ \t]*(?:python|py|python3)?[ \t]*\r?\n(.*?)(?:\r?\n```|\Z)", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTask:
    """A function to complete and the tests it must pass."""

    id: str
    prompt: str
    entry_point: str
    test: str

    def program(self, completion: str) -> str:
        """The program that is run: the published form, prompt + completion, then the tests."""
        return f"{self.prompt}{completion}\n{self.test}\ncheck({self.entry_point})\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSample:
    """A completion of a task."""

    task_id: str
    completion: str


def run_programs(
    programs: Sequence[Program | None],
    *,
    sandbox: Sandbox,
    engine: ParallelEngine,
    known: dict[str, CaseOutcome] | None = None,
    on_outcome: Callable[[CaseOutcome], None] = lambda _: None,
) -> list[CaseOutcome | None]:
    """The outcome of every program, in order; equal programs are run once, and those in `known` not at all."""
    outcomes = {} if known is None else known
    keys = [None if p is None else p.key(sandbox) for p in programs]
    todo = {k: p for k, p in zip(keys, programs, strict=True) if k is not None and p is not None and k not in outcomes}
    names = list(todo)

    def keep(index: int, result: Any) -> None:
        failed = isinstance(result, FailedItem)
        outcome = CaseOutcome(key=names[index], harness_error=result.reason) if failed else result
        outcomes[outcome.key] = outcome
        on_outcome(outcome)

    with scratch_folder() as scratch:
        context = WorkContext(sandbox=sandbox, limits=ProgramLimits(seconds=SECONDS), scratch=scratch)
        engine.map(run_program, list(todo.values()), shared=context, on_done=keep)
    return [None if key is None else outcomes[key] for key in keys]


def read_tasks(path: Path) -> dict[str, FunctionTask]:
    """The tasks of a data set, by id."""
    found: dict[str, FunctionTask] = {}
    for where, row in _rows(path):
        missing = [key for key in ("task_id", *KEYS) if not isinstance(row.get(key), str)]
        if missing:
            raise InputError(f"{where}: {missing[0]}: expected text; a task has task_id, prompt, entry_point and test")
        task = FunctionTask(id=row["task_id"], **{key: row[key] for key in KEYS})
        if not task.entry_point.isidentifier():
            raise InputError(f"{where}: entry_point: {task.entry_point!r} is not the name of a function")
        if task.id in found:
            raise InputError(f"{where}: task {task.id!r} is there twice")
        found[task.id] = task
    if not found:
        raise InputError(f"{path}: there is no task in it")
    return found


def read_samples(paths: Iterable[Path], tasks: Mapping[str, FunctionTask]) -> list[FunctionSample]:
    """The samples of files, in order; one of a task that the data set does not have is refused."""
    found = []
    for path in paths:
        for where, row in _rows(path):
            for key in ("task_id", "completion"):
                if not isinstance(row.get(key), str):
                    raise InputError(f"{where}: {key}: expected text; a sample has task_id and completion")
            if row["task_id"] not in tasks:
                raise InputError(f"{where}: {UnknownName('task', row['task_id'], list(tasks), 'not in the data set')}")
            found.append(FunctionSample(task_id=row["task_id"], completion=row["completion"]))
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


def build_program(output: str, reference: object) -> str:
    """A model's output and its tests as one program.

    `reference` is Python that tests what the output defines, or an object (or its JSON) with `test` and optionally
    `entry_point` and `prompt`. Of an output with code blocks the code is taken. Where the prompt's function is defined
    in it, it stands after what the prompt has before that function; else it is taken to go on where the prompt ends,
    indented where it is not.

    >>> task = {"prompt": "def one():\\n", "entry_point": "one", "test": "def check(f):\\n    assert f() == 1"}
    >>> print(build_program("    return 1", task))
    def one():
        return 1
    def check(f):
        assert f() == 1
    check(one)
    <BLANKLINE>
    """
    fields = _tests(reference)
    if fields is None:
        return f"{extract_code(output)}\n{reference}\n"
    prompt, entry, test = (str(fields.get(key) or "") for key in KEYS)
    call = f"check({entry})\n" if entry else ""
    return f"{_join_prompt(prompt, extract_code(output), entry)}\n{test}\n{call}"


def _tests(reference: object) -> Mapping[str, Any] | None:
    found: Any = reference
    if not isinstance(reference, Mapping):
        try:
            found = json.loads(str(reference))
        except json.JSONDecodeError:
            return None
    if not isinstance(found, Mapping):
        return None
    if not isinstance(found.get("test"), str):
        raise InputError("runs_tests: the reference has no `test`: expected Python, or test, entry_point and prompt")
    return found


def extract_code(output: str) -> str:
    """The code in an output: its code blocks, or all of it.

    >>> extract_code("Here:\\n```python\\nx = 1\\n```\\nand that is it.")
    'x = 1'
    """
    blocks = _FENCE.findall(output)
    return "\n\n".join(blocks) if blocks else output


def _join_prompt(prompt: str, code: str, entry: str) -> str:
    """The prompt and the code, in whichever way they fit."""
    if not prompt:
        return code
    # a chat model repeats the whole function, a base model continues after the prompt
    function = re.compile(rf"^(?:async\s+)?def\s+{re.escape(entry)}\s*\(", re.MULTILINE)
    if entry and function.search(textwrap.dedent(code)):
        found = function.search(prompt)  # what stands before it: imports and helpers
        return f"{prompt[: found.start()] if found else prompt}\n{textwrap.dedent(code)}"
    indented = next((line for line in code.splitlines() if line.strip()), "")[:1].isspace()
    return f"{prompt}{code if indented else textwrap.indent(code, '    ')}"


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
            raise InputError(f"runs_tests runs programs in a sandbox, and {missing[0]} is not here: {INSTALL_COMMAND}")

    def __call__(self, prediction: object, reference: object) -> float | None:
        return self.many([prediction], [reference])[0]

    def many(
        self, predictions: Sequence[object], references: Sequence[object], engine: ParallelEngine | None = None
    ) -> list[float | None]:
        """The scores of many at once, on the engine or on all cores; of several references the best counts."""
        several = enumerate(zip(predictions, references, strict=True))
        pairs = [(i, p, r) for i, (p, rs) in several for r in references_of(rs)]
        texts = [None if p is None else build_program(str(p), r) for _, p, r in pairs]
        programs = [None if text is None else Program(text=text, seconds=self.timeout) for text in texts]
        with make_engine("local") if engine is None else nullcontext(engine) as map_engine:
            outcomes = run_programs(programs, sandbox=find_sandbox(unsafe=self.unsafe), engine=map_engine)
        scores: list[float | None] = [None] * len(predictions)
        for (i, _, _), one in zip(pairs, outcomes, strict=True):
            value = 0.0 if one is None else None if one.passed is None else float(one.passed)
            scores[i] = value if scores[i] is None else max(scores[i] or 0.0, value or 0.0)
        return scores


_MOST_REASONS = 5


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SampleResults(Displayable):
    """The samples of a data set, and the outcome of each; `run` is what was written of them."""

    view: ClassVar[str] = "kofn.problems.functions:samples_document"
    printer: ClassVar[str] = "kofn.problems.functions:format_samples"

    paths: tuple[Path, ...]
    tasks: Mapping[str, FunctionTask]
    samples: Sequence[FunctionSample]
    outcomes: Sequence[CaseOutcome]
    seconds: float
    run: Run | None = None

    @property
    def result(self) -> ScoredResult:
        """The numbers over the samples."""
        if self.run is None:
            raise InputError("these samples are not reported yet: write_samples makes a run of them")
        return self.run.scored_result

    def rows(self) -> list[dict[str, Any]]:
        """One row per estimate."""
        return self.result.rows()

    def to_dict(self) -> dict[str, Any]:
        """As `kofn verify --json` prints it."""
        return self.result.to_dict()

    @property
    def failure(self) -> str | None:
        """What broke, where the harness did."""
        errors = [one.harness_error for one in self.outcomes if one.passed is None]
        return f"the harness failed on {len(errors):,}: {errors[0]}" if errors else None

    def reasons(self) -> list[tuple[str, int]]:
        """Why samples did not pass, by kind of error, the most frequent first."""
        return Counter(one.reason.partition(":")[0] for one in self.outcomes if one.passed is False).most_common()


def format_samples(results: SampleResults, style: Callable[[str, str], str] = lambda text, _: text) -> str:
    """The numbers, why samples did not pass, and where the run is."""
    lines = [results.result.to_text(style)]
    if reasons := results.reasons():
        shares = ", ".join(f"{reason} ({n:,})" for reason, n in reasons[:_MOST_REASONS])
        more = f" and {len(reasons) - _MOST_REASONS:,} other reasons" if len(reasons) > _MOST_REASONS else ""
        lines.append(escape_controls(f"not passed  {shares}{more}"))
    if results.run is not None and results.run.path is not None:
        lines.append(escape_controls(f"run in {results.run.path}; open {results.run.path / 'report.html'}"))
    return "\n".join(lines)


def samples_document(results: SampleResults) -> Document:
    """The same for a notebook."""
    found = results.result.document()
    notes = [("not passed", f"{reason} ({n:,})") for reason, n in results.reasons()[:_MOST_REASONS]]
    return replace(found, notes=(*found.notes, *notes))


def run_samples(
    tasks: Path,
    samples: Sequence[Path],
    *,
    engine: ParallelEngine,
    sandbox: Sandbox,
    out: Path,
    seconds: float | None = None,
    aggregate: Sequence[str] = (),
    progress: ExecutionCount | None = None,
) -> SampleResults:
    """Run every sample; equal ones are run once, and what is finished in `out` is not run again.

    `aggregate` are the aggregators of the report: what cannot be computed is refused before anything is run.
    `progress` counts the samples while they are run.
    """
    known_tasks = read_tasks(tasks)
    loaded = read_samples(samples, known_tasks)
    limit = seconds or SECONDS
    nothing = [CaseOutcome(key="")] * len(loaded)
    results = SampleResults(paths=(tasks, *samples), tasks=known_tasks, samples=loaded, outcomes=nothing, seconds=limit)
    if aggregate:
        _result(results, aggregate)
    programs = [Program(text=known_tasks[s.task_id].program(s.completion), seconds=limit) for s in loaded]
    count, name = progress or ExecutionCount(), tasks.name.partition(".")[0]
    with CaseStore(out) as store, write_progress(out, count, name, [path.name for path in samples], keep=True):
        keys = list(dict.fromkeys(p.key(sandbox) for p in programs))
        known = store.get(keys)
        count.on_total(len(keys), len(known), sum(bool(outcome.passed) for outcome in known.values()))

        def keep(outcome: CaseOutcome) -> None:
            store.put([outcome])
            count.on_case(outcome)

        outcomes = run_programs(programs, sandbox=sandbox, engine=engine, known=known, on_outcome=keep)
    return replace(results, outcomes=[one for one in outcomes if one is not None])


def task_records(results: SampleResults) -> list[dict[str, Any]]:
    """One record per task with its samples; a task that was not attempted has none, and no number."""
    outputs: dict[str, list[dict[str, Any]]] = {task: [] for task in results.tasks}
    for sample, outcome in zip(results.samples, results.outcomes, strict=True):
        text = sample.completion.encode(errors="backslashreplace").decode()
        facts = {"passed": outcome.passed, "seconds": outcome.process.seconds, "note": outcome.reason or None}
        outputs[sample.task_id].append({"text": text, **facts})
    return [{"id": id_, "input": task.prompt, "outputs": outputs[id_]} for id_, task in results.tasks.items()]


def _result(results: SampleResults, aggregate: Sequence[str]) -> ScoredResult:
    table = load_table(task_records(results), ReadOptions())
    table = replace(table, form="samples", sources=tuple(map(str, results.paths[1:])))
    return evaluate(table, GradingConfig(extract="none", aggregate=tuple(aggregate)))


def write_samples(
    results: SampleResults,
    directory: Path,
    *,
    aggregate: Sequence[str] = (),
    policy: PassPolicy | None = None,
    tags: Sequence[str] = (),
) -> Run:
    """Write the run directory: candidate sets like any other, and one row per execution."""
    result = _result(results, aggregate)
    plan = ReportConfig(task=results.paths[0].name.partition(".")[0], policy=policy, tags=tags)
    options = {"aggregate": list(aggregate), "timeout": results.seconds}
    tables = {EXECUTIONS: executions(results)}
    return write_run(result, directory, sources=results.paths, options=options, report=plan, tables=tables)


def executions(results: SampleResults) -> pl.DataFrame:
    """One row per sample: whether it passed, why not, and how long it took."""
    pairs = zip(results.samples, results.outcomes, strict=True)
    rows = [(sample.task_id, one.passed, one.reason, one.process.seconds) for sample, one in pairs]
    schema = {"task_id": pl.String, "passed": pl.Boolean, "reason": pl.String, "seconds": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")
