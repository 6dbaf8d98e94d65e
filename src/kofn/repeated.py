"""Tests whose body runs n times: what is asked of them, and what came of it.

`kofn.pytest_plugin` runs them; here are the numbers. A test is a case, each run of its body a candidate.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError, UnknownName
from kofn.policy import Requirement

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from kofn.evaluate import Result
    from kofn.present import Grid

REPEATS = 5
EVERY_ONE = "all_pass >= 1"  # what a plain test asks, of every repeat
OVER = ("test", "cases")
_NAMED = 5
_LONGEST = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a marker asks: so many repeats, and bounds on what they give, a test or over all cases of its function.

    >>> Asked.of([], {"repeats": 4, "require": "pass^3 >= 0.9"}).requirements[0].bound
    0.9
    >>> Asked.of([], {"repeats": 4, "requires": "pass^3 >= 0.9"})
    Traceback (most recent call last):
    ...
    kofn.errors.UnknownName: unknown argument 'requires': did you mean require?
    """

    repeats: int
    requirements: tuple[Requirement, ...]
    over: str = "test"

    @classmethod
    def of(cls, unnamed: Sequence[Any], arguments: Mapping[str, Any], repeats: int | None = None) -> Asked:
        """From a marker's arguments; `repeats` wins over the marker's."""
        if unnamed:
            raise InputError(f"{unnamed[0]!r} has no name: write repeats=5, require='pass^3 >= 0.9'")
        for name in arguments:
            if name not in ("repeats", "require", "over"):
                raise UnknownName("argument", name, ["repeats", "require", "over"])
        given = arguments.get("repeats", REPEATS) if repeats is None else repeats
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            raise InputError(f"repeats={given!r}: expected a whole number of 1 or more")
        over = arguments.get("over", "test")
        if over not in OVER:
            raise InputError(f"over={over!r}: expected one of {', '.join(OVER)}")
        require = arguments.get("require", EVERY_ONE)
        texts = [require] if isinstance(require, str) else list(require)
        if not texts or not all(isinstance(text, str) for text in texts):
            raise InputError(f"require={require!r}: expected such as 'pass^3 >= 0.9', or several of them")
        asked = cls(repeats=given, requirements=tuple(map(Requirement.parse, texts)), over=over)
        for requirement in asked.requirements:
            asked._check(requirement)
        return asked

    def _check(self, requirement: Requirement) -> None:
        """Refuse a number nothing answers to, or that cannot come of so many repeats."""
        from kofn.registry import aggregator

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
        """What a body says of itself; a later word counts."""
        __tracebackhide__ = True
        for name, given in (("value", value), ("cost", cost)):
            if given is not None:
                setattr(self, name, _number(name, given))
        if answer is not None:
            self.answer = str(answer)
        if output is not None:
            self.output = str(output)


def _number(name: str, given: Any) -> float:
    __tracebackhide__ = True
    try:
        found = float(given)
    except (TypeError, ValueError):
        raise InputError(f"kofn_score: {name} is a number, not {given!r}") from None
    if not isfinite(found):
        raise InputError(f"kofn_score: {name} is a finite number, not {found}")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A requirement and what was found: `shown` is its number, with an interval over cases, or why there is none."""

    requirement: str
    value: float | None
    met: bool
    shown: str

    @property
    def name(self) -> str:
        """Of the number: mean, mean.low."""
        return _full_name(Requirement.parse(self.requirement))

    @property
    def text(self) -> str:
        """For a line.

        >>> Found(requirement="pass^3 >= 0.9", value=0.1, met=False, shown="0.100").text
        'pass^3 = 0.100, required >= 0.9'
        """
        required = Requirement.parse(self.requirement)
        bound = f"required {required.operator} {required.bound:g}"
        of = "" if required.part == "point" else f" of its {'lower' if required.part == 'low' else 'upper'} end"
        return f"{required.name} = {self.shown}, {bound}{of}"

    @classmethod
    def of(cls, requirement: Requirement, value: float | None, shown: str) -> Found:
        met = value is not None and requirement.met_by(value)
        return cls(requirement=str(requirement), value=value, met=met, shown=shown)


def _full_name(requirement: Requirement) -> str:
    return requirement.name if requirement.part == "point" else f"{requirement.name}.{requirement.part}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """A test that has run, or all cases of one: plain data, so that it travels between processes."""

    test: str
    function: str
    repeats: tuple[Repeat, ...]
    found: tuple[Found, ...] = ()
    over: str = "test"
    requirements: tuple[str, ...] = ()
    cases: int = 1
    xfailed: bool = False
    failure: str = field(default="", repr=False)

    @property
    def met(self) -> bool:
        return all(one.met for one in self.found)

    @property
    def passes(self) -> int:
        return sum(one.passed is True for one in self.repeats)

    @property
    def line(self) -> str:
        """How many passed, and what is not as required, if anything is not.

        >>> test = Repeated(test="t", function="t", repeats=(Repeat(), Repeat(outcome="failed")))
        >>> test.line
        '1 of 2 passed'
        """
        outcomes = [one.outcome for one in self.repeats]
        aside = [f"{n} {what}" for what in ("error", "skipped") if (n := outcomes.count(what))]
        note = f" ({', '.join(aside)})" if aside else ""
        where = f" in {self.cases:,} cases" if self.cases > 1 else ""
        counts = f"{self.passes:,} of {len(self.repeats):,} passed{note}{where}"
        unmet = [one for one in self.found if not one.met]
        return "; ".join([counts, *(one.text for one in unmet or self.found)])

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Repeated:
        parts = {
            "repeats": tuple(Repeat(**one) for one in data["repeats"]),
            "found": tuple(Found(**one) for one in data["found"]),
            "requirements": tuple(data["requirements"]),
        }
        return cls(**{**data, **parts})


def judged(asked: Asked, repeats: Sequence[Repeat]) -> tuple[Found, ...]:
    """Every requirement on the repeats of one test. One that cannot be said is not met, and says why."""
    return tuple(_judged(requirement, repeats) for requirement in asked.requirements)


def _judged(requirement: Requirement, repeats: Sequence[Repeat]) -> Found:
    from kofn.api import aggregate

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
        return Found.of(requirement, None, f"undefined ({problem}; kofn_score records such)")
    return Found.of(requirement, value, "undefined" if value is None else f"{value:.{requirement.digits(value)}f}")


def pooled(tests: Sequence[Repeated]) -> list[Repeated]:
    """The tests whose requirements are over all cases of a function, one for each function."""
    functions: dict[str, list[Repeated]] = {}
    for test in tests:
        if test.over == "cases":
            functions.setdefault(test.function, []).append(test)
    return [_pooled(function, of) for function, of in functions.items()]


def _pooled(function: str, tests: Sequence[Repeated]) -> Repeated:
    """The requirements of a function on the estimates over its cases, with their intervals."""
    requirements = [Requirement.parse(text) for text in tests[0].requirements]
    graded = [test for test in tests if any(one.passed is not None for one in test.repeats)]
    if not graded:
        return Repeated(test=function, function=function, repeats=(), cases=len(tests))
    try:
        result = result_of(graded, aggregate=[one.name for one in requirements])
        found = tuple(_on_cases(requirement, result) for requirement in requirements)
    except InputError as problem:
        found = tuple(Found.of(requirement, None, f"undefined ({problem})") for requirement in requirements)
    worst = sorted(graded, key=lambda test: sum(one.grade or 0.0 for one in test.repeats) / len(test.repeats))
    lowest = [f"{test.passes} of {len(test.repeats)}  {test.test}" for test in worst[:_NAMED]]
    first = next((test.failure for test in worst if test.failure), "")
    return Repeated(
        test=function,
        function=function,
        repeats=tuple(one for test in tests for one in test.repeats),
        found=found,
        cases=len(tests),
        failure="\n".join(["passed  lowest", *lowest, *(["", first] if first else [])]),
    )


def _on_cases(requirement: Requirement, result: Result) -> Found:
    from kofn.registry import aggregator

    name = aggregator(requirement.name).name
    own = [e for e in result.estimates if e.aggregator == name]
    estimate = own[-1]  # scores come after passes, and say more where both have this number
    value: float | None = getattr(estimate, requirement.part)
    return Found.of(requirement, value, requirement.found(estimate))


def rows_of(tests: Iterable[Repeated]) -> list[dict[str, Any]]:
    """A row a repeat, as `kofn.score` takes them. Scores, answers and costs are there where a body recorded some."""
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


def result_of(tests: Iterable[Repeated], aggregate: Sequence[str] = ()) -> Result:
    """The numbers over tests."""
    from kofn.api import score

    rows = rows_of(tests)
    extract = None if any("extracted_answer" in row for row in rows) else "none"
    return score(rows, aggregate=list(dict.fromkeys(aggregate)), extract=extract, everything=True)


def write(tests: Sequence[Repeated], directory: Path) -> None:
    """A run directory of all tests: a case a test, a candidate a repeat."""
    from kofn.report.convert import Plan
    from kofn.report.files import write_run

    always = ["all_pass", "any_pass", "pass@1"]
    names = [Requirement.parse(text).name for test in tests for text in test.requirements]
    try:
        result = result_of(tests, [*always, *names])
    except InputError:  # a number that these tests have no part of, such as a vote without answers
        result = result_of(tests, always)
    plan = Plan(task="pytest", name=directory.resolve().name, verdict=_verdict(tests), group="file")
    write_run(result, directory, sources=[], options={"aggregate": []}, plan=plan)


def _verdict(tests: Sequence[Repeated]) -> str:
    """When a case of the run passes: by what every test requires, where that is one and the same bound."""
    asked = {test.requirements for test in tests}
    first = [Requirement.parse(text) for text in tests[0].requirements]
    same = len(asked) == 1 and len(first) == 1 and first[0].part == "point"
    return str(first[0]) if same else EVERY_ONE


def summary(tests: Sequence[Repeated], *, most: int | None) -> tuple[Grid, int]:
    """A row a test and requirement, those that fail first; and how many that pass are left out.

    With `most`, so many that pass stay, and a case of those that are looked at together is not a row.
    """
    from kofn.present import Grid

    failed = [test for test in tests if not test.met]
    passed = [test for test in tests if test.met and (most is None or test.over != "cases")]
    kept = passed if most is None else passed[:most]
    rows = [row for test in (*failed, *kept) for row in _rows(test)]
    header = ("", "test", "repeats", "passed", "required", "found")
    grid = Grid("", header, tuple(rows), (False, False, True, True, False, False))
    return grid, len(passed) - len(kept)


def _rows(test: Repeated) -> list[tuple[str, ...]]:
    name = test.test if test.cases == 1 else f"{test.test} ({test.cases:,} cases)"
    counts = (f"{len(test.repeats):,}", f"{test.passes:,}")
    if not test.found:
        why = next((one.message.partition("\n")[0] for one in reversed(test.repeats) if one.passed is None), "")
        return [("-", name, *counts, "", "over all cases" if test.over == "cases" else f"not graded: {why}")]
    return [
        (
            "✓" if one.met else "x" if test.xfailed else "✗",
            *((name, *counts) if i == 0 else ("", "", "")),
            one.requirement,
            one.shown,
        )
        for i, one in enumerate(test.found)
    ]


def shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}\n... ({len(text) - _LONGEST:,} characters more)"
