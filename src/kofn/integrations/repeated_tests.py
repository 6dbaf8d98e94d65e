"""Tests whose body runs n times: the requirements of their marker, their results, and the summary of a session.

`kofn.integrations.pytest_plugin` runs them; the numbers are computed here. A test is a case, each run of its body a
candidate.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any

from kofn.core.document import Grid
from kofn.errors import InputError, UnknownName
from kofn.registry import aggregator
from kofn.scoring.configuration import Requirement
from kofn.scoring.groupwise import aggregate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from kofn.scoring.result import ScoredResult

REPEATS = 5
EVERY_ONE = "all_pass >= 1"  # what an unmarked test requires, of every repeat
OVER = ("test", "cases")
_LISTED = 5  # tests below the failure of a function
_LONGEST = 4000  # characters of a failure that travels between the processes of xdist


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatRequest:
    """The arguments of a marker: a number of repeats, and requirements per test or over all cases of its function.

    >>> RepeatRequest.of([], {"repeats": 4, "require": "pass^3 >= 0.9"}).requirements[0].bound
    0.9
    >>> RepeatRequest.of([], {"repeats": 4, "requires": "pass^3 >= 0.9"})
    Traceback (most recent call last):
    ...
    kofn.errors.UnknownName: unknown argument 'requires': did you mean require?
    """

    repeats: int
    requirements: tuple[Requirement, ...]
    over: str = "test"

    @classmethod
    def of(cls, unnamed: Sequence[Any], arguments: Mapping[str, Any], repeats: int | None = None) -> RepeatRequest:
        """From a marker's arguments; `repeats` wins over the marker's."""
        if unnamed:
            raise InputError(f"{unnamed[0]!r} has no name: write repeats=5, require='pass^3 >= 0.9'")
        for name in arguments:
            if name not in ("repeats", "require", "over"):
                raise UnknownName("argument", name, ["repeats", "require", "over"])
        number = arguments.get("repeats", REPEATS) if repeats is None else repeats
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise InputError(f"repeats={number!r}: expected a whole number of 1 or more")
        over = arguments.get("over", "test")
        if over not in OVER:
            raise InputError(f"over={over!r}: expected one of {', '.join(OVER)}")
        require = arguments.get("require", EVERY_ONE)
        texts = [require] if isinstance(require, str) else list(require)
        if not texts or not all(isinstance(text, str) for text in texts):
            raise InputError(f"require={require!r}: expected such as 'pass^3 >= 0.9', or several of them")
        request = cls(repeats=number, requirements=tuple(map(Requirement.parse, texts)), over=over)
        for requirement in request.requirements:
            request._check(requirement)
        return request

    def _check(self, requirement: Requirement) -> None:
        """Refuse an unknown aggregator, or one that is undefined for this number of repeats."""
        rule = aggregator(requirement.name)
        most = max((n for name in ("k", "m") if isinstance(n := getattr(rule, name, None), int)), default=1)
        if most > self.repeats and not rule.of_values:
            raise InputError(
                f"require {str(requirement)!r}: needs {most} repeats or more, and there are {self.repeats}"
            )
        if requirement.part != "point" and self.over == "test":
            raise InputError(f"require {str(requirement)!r}: one test has no interval over cases: give over='cases'")


@dataclass(slots=True, kw_only=True)
class Repeat:
    """One run of a test's body. `passed` is None where it was not graded: skipped, or its fixtures failed.

    outcome  passed, failed (an assertion), error (any other exception), xfailed, skipped
    value    the score that the body recorded; `grade` is what counts
    """

    outcome: str = "passed"
    message: str = ""
    seconds: float = 0.0
    value: float | None = None
    answer: str | None = None
    cost: float | None = None
    output: str | None = None

    @property
    def passed(self) -> bool | None:
        return None if self.outcome == "skipped" else self.outcome == "passed"

    @property
    def grade(self) -> float | None:
        """The recorded score; without one 1 for a pass and 0 for a fail."""
        if self.passed is None:
            return None
        return float(self.passed) if self.value is None else self.value

    def record(self, value: Any, answer: Any, cost: Any, output: Any) -> None:
        """Store what the body of a test reports; the last report counts."""
        __tracebackhide__ = True
        for name, number in (("value", value), ("cost", cost)):
            if number is not None:
                setattr(self, name, _number(name, number))
        if answer is not None:
            self.answer = str(answer)
        if output is not None:
            self.output = str(output)


def _number(name: str, value: Any) -> float:
    __tracebackhide__ = True  # pytest then shows the line of the test that called kofn_score
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"kofn_score: {name} is a number, not {value!r}") from None
    if not isfinite(number):
        raise InputError(f"kofn_score: {name} is a finite number, not {number}")
    return number


@dataclass(frozen=True, slots=True, kw_only=True)
class RequirementResult:
    """A requirement and its value; `formatted` has the interval over cases too, or why there is no value."""

    requirement: str
    value: float | None
    met: bool
    formatted: str

    @property
    def name(self) -> str:
        """The name of the number: mean, mean.low."""
        required = Requirement.parse(self.requirement)
        return required.name if required.part == "point" else f"{required.name}.{required.part}"

    @property
    def text(self) -> str:
        """The result in words.

        >>> RequirementResult(requirement="pass^3 >= 0.9", value=0.1, met=False, formatted="0.100").text
        'pass^3 = 0.100, required >= 0.9'
        """
        required = Requirement.parse(self.requirement)
        bound = f"required {required.operator} {required.bound:g}"
        of = "" if required.part == "point" else f" of its {'lower' if required.part == 'low' else 'upper'} end"
        return f"{required.name} = {self.formatted}, {bound}{of}"

    @classmethod
    def of(cls, requirement: Requirement, value: float | None, formatted: str) -> RequirementResult:
        met = value is not None and requirement.met_by(value)
        return cls(requirement=str(requirement), value=value, met=met, formatted=formatted)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedTest:
    """A test that has run, or all cases of one: plain data, so that it travels between processes."""

    test: str
    function: str
    repeats: tuple[Repeat, ...]
    results: tuple[RequirementResult, ...] = ()
    over: str = "test"
    requirements: tuple[str, ...] = ()
    cases: int = 1
    xfailed: bool = False
    failure: str = field(default="", repr=False)

    @property
    def met(self) -> bool:
        return all(one.met for one in self.results)

    @property
    def passes(self) -> int:
        return sum(one.passed is True for one in self.repeats)

    @property
    def line(self) -> str:
        """The number of repeats that passed, and the requirements that are not met, if any.

        >>> test = RepeatedTest(test="t", function="t", repeats=(Repeat(), Repeat(outcome="failed")))
        >>> test.line
        '1 of 2 passed'
        """
        outcomes = [one.outcome for one in self.repeats]
        aside = [f"{n} {what}" for what in ("error", "skipped") if (n := outcomes.count(what))]
        note = f" ({', '.join(aside)})" if aside else ""
        where = f" in {self.cases:,} cases" if self.cases > 1 else ""
        counts = f"{self.passes:,} of {len(self.repeats):,} passed{note}{where}"
        unmet = [one for one in self.results if not one.met]
        return "; ".join([counts, *(one.text for one in unmet or self.results)])

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RepeatedTest:
        parts = {
            "repeats": tuple(Repeat(**one) for one in data["repeats"]),
            "results": tuple(RequirementResult(**one) for one in data["results"]),
            "requirements": tuple(data["requirements"]),
        }
        return cls(**{**data, **parts})


def check_requirements(request: RepeatRequest, repeats: Sequence[Repeat]) -> tuple[RequirementResult, ...]:
    """Every requirement on the repeats of one test. One whose value is undefined is not met, and says why."""
    return tuple(_check_requirement(requirement, repeats) for requirement in request.requirements)


def _check_requirement(requirement: Requirement, repeats: Sequence[Repeat]) -> RequirementResult:
    answers = [one.answer for one in repeats]
    try:
        value = aggregate(
            requirement.name,
            values=[one.grade for one in repeats],
            passes=[one.passed for one in repeats],
            answers=answers if any(a is not None for a in answers) else None,
            texts=[one.output for one in repeats] if any(one.output is not None for one in repeats) else None,
        )
    except InputError as problem:
        return RequirementResult.of(requirement, None, f"undefined ({problem}; kofn_score records such)")
    return RequirementResult.of(
        requirement, value, "undefined" if value is None else f"{value:.{requirement.digits(value)}f}"
    )


def pooled(tests: Sequence[RepeatedTest]) -> list[RepeatedTest]:
    """The tests whose requirements are over all cases of a function, one for each function."""
    functions: dict[str, list[RepeatedTest]] = {}
    for test in tests:
        if test.over == "cases":
            functions.setdefault(test.function, []).append(test)
    return [_pooled(function, of) for function, of in functions.items()]


def _pooled(function: str, tests: Sequence[RepeatedTest]) -> RepeatedTest:
    """The requirements of a function on the estimates over its cases, with their intervals."""
    requirements = [Requirement.parse(text) for text in tests[0].requirements]
    graded = [test for test in tests if any(one.passed is not None for one in test.repeats)]
    if not graded:
        return RepeatedTest(test=function, function=function, repeats=(), cases=len(tests))
    try:
        result = result_of(graded, aggregate=[one.name for one in requirements])
        # of the scores, which come after the passes and are finer where both have a number
        last = {e.aggregator: e for e in result.estimates}
        found = [(requirement, last[aggregator(requirement.name).name]) for requirement in requirements]
        results = tuple(RequirementResult.of(r, getattr(e, r.part), r.describe(e)) for r, e in found)
    except InputError as problem:
        results = tuple(
            RequirementResult.of(requirement, None, f"undefined ({problem})") for requirement in requirements
        )
    worst = sorted(graded, key=lambda test: sum(one.grade or 0.0 for one in test.repeats) / len(test.repeats))
    lowest = [f"{test.passes} of {len(test.repeats)}  {test.test}" for test in worst[:_LISTED]]
    first = next((test.failure for test in worst if test.failure), "")
    return RepeatedTest(
        test=function,
        function=function,
        repeats=tuple(one for test in tests for one in test.repeats),
        results=results,
        cases=len(tests),
        failure="\n".join(["passed  lowest", *lowest, *(["", first] if first else [])]),
    )


def rows_of(tests: Iterable[RepeatedTest]) -> list[dict[str, Any]]:
    """One row per repeat, as `kofn.score` takes them, with scores, answers and costs where a body recorded some."""
    tests = list(tests)
    every = [one for test in tests for one in test.repeats]
    scored, answered = (any(getattr(one, name) is not None for one in every) for name in ("value", "answer"))
    return [
        {
            "id": test.test,
            "repeat": i,
            "file": test.test.partition("::")[0],
            "function": test.function,
            "output": one.output if one.output is not None else one.message or None,
            "pass": one.passed,
            "error": (one.message or one.outcome) if one.passed is None else None,
            "seconds": one.seconds,
            "cost": one.cost,
            **({"score": one.grade} if scored else {}),
            **({"extracted_answer": one.answer} if answered else {}),
        }
        for test in tests
        for i, one in enumerate(test.repeats)
    ]


def result_of(tests: Iterable[RepeatedTest], aggregate: Sequence[str] = ()) -> ScoredResult:
    """The numbers over tests."""
    # only the process that reports needs these: each worker of xdist would load polars and all importers for nothing
    from kofn.importers.base import ReadOptions
    from kofn.runs.load import load_table
    from kofn.scoring.configuration import GradingConfig
    from kofn.scoring.evaluate import evaluate

    rows = rows_of(tests)
    extract = None if any("extracted_answer" in row for row in rows) else "none"
    config = GradingConfig(aggregate=tuple(dict.fromkeys(aggregate)), extract=extract)
    return evaluate(load_table(rows, ReadOptions(everything=True)), config)


def write_tests(tests: Sequence[RepeatedTest], directory: Path) -> None:
    """A run directory of all tests: one case per test, one candidate per repeat."""
    from kofn.render.run_directory import write_run
    from kofn.scoring.configuration import ReportConfig

    always = ["all_pass", "any_pass", "pass@1"]
    names = [Requirement.parse(text).name for test in tests for text in test.requirements]
    try:
        result = result_of(tests, [*always, *names])
    except InputError:  # an aggregator that these tests have no data for, such as a vote without answers
        result = result_of(tests, always)
    # a case of the run passes by the requirement of the tests, where all have the same single one
    first, *others = {test.requirements for test in tests}
    only = Requirement.parse(first[0]) if not others and len(first) == 1 else None
    verdict = str(only) if only is not None and only.part == "point" else EVERY_ONE
    plan = ReportConfig(task="pytest", name=directory.resolve().name, verdict=verdict, group="file")
    write_run(result, directory, sources=[], options={"aggregate": []}, report=plan)


def summary_grid(tests: Sequence[RepeatedTest], *, most: int | None) -> tuple[Grid, int]:
    """One row per test and requirement, failures first; and the number of passing tests that are left out.

    With `most`, that many passing tests stay, and the cases of a function with over="cases" get no rows of their own.
    """
    failed = [test for test in tests if not test.met]
    passed = [test for test in tests if test.met and (most is None or test.over != "cases")]
    kept = passed if most is None else passed[:most]
    rows = [row for test in (*failed, *kept) for row in _rows(test)]
    header = ("", "test", "repeats", "passed", "required", "found")
    grid = Grid("", header, tuple(rows), (False, False, True, True, False, False))
    return grid, len(passed) - len(kept)


def _rows(test: RepeatedTest) -> list[tuple[str, ...]]:
    name = test.test if test.cases == 1 else f"{test.test} ({test.cases:,} cases)"
    counts = (f"{len(test.repeats):,}", f"{test.passes:,}")
    if not test.results:
        why = next((one.message.partition("\n")[0] for one in reversed(test.repeats) if one.passed is None), "")
        return [("-", name, *counts, "", "over all cases" if test.over == "cases" else f"not graded: {why}")]
    return [
        (
            "✓" if one.met else "x" if test.xfailed else "✗",
            *((name, *counts) if i == 0 else ("", "", "")),
            one.requirement,
            one.formatted,
        )
        for i, one in enumerate(test.results)
    ]


def truncate(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}\n... ({len(text) - _LONGEST:,} characters more)"
