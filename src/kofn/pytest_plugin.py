"""`@pytest.mark.kofn(repeats=5, require="pass_hat(k=3) >= 0.9")`: a test runs n times and passes by the aggregate.

Every repeat has its own set-up and teardown, so function-scoped fixtures and the instance of a class are new each time;
wider fixtures are shared. pytest sees one test: the repeats are settled in the last one's call, by raising what the
first failing repeat raised or by raising nothing. So xfail, --pdb, -x, JUnit and xdist work as they do for any test.

pytest loads this module in every session, so it imports nothing of kofn before a test is marked.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from kofn.repeated import Asked, Repeat, Repeated

    Section = tuple[str, str, str]

_SHOWN = 20  # tests that pass in the summary, unless -v
_LISTED = 10  # repeats below a failure


@dataclass
class _Going:
    """A marked test while it runs."""

    asked: Asked
    repeats: list[Repeat] = field(default_factory=list)
    raised: dict[int, tuple[BaseException, list[Section]]] = field(default_factory=dict)
    tested: Repeated | None = None


_ASKED: pytest.StashKey[Asked] = pytest.StashKey()
_WRONG: pytest.StashKey[str] = pytest.StashKey()
_GOING: pytest.StashKey[_Going] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kofn", "tests that run n times (kofn)")
    group.addoption("--kofn-repeats", type=int, metavar="N", help="run every test marked kofn N times")
    group.addoption(
        "--kofn-out", type=Path, metavar="DIR", help="write a kofn run directory: a case a test marked kofn"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        'kofn(repeats=5, require="pass_hat(k=3) >= 0.9", over="test"): run the test so many times; it passes when what '
        'is required holds. over="cases": of all parameters of the function together.',
    )
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Gathering(config), "kofn-gathering")
    out = config.getoption("kofn_out")
    if out is not None:
        from kofn.errors import KofnError
        from kofn.report.files import check_new

        try:
            check_new(out)
        except KofnError as problem:
            raise pytest.UsageError(f"--kofn-out {problem}") from None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Read the markers. A mistake in one ends the session; a worker of xdist cannot say so, there the test does."""
    for item in items:
        if (marker := item.get_closest_marker("kofn")) is None:
            continue
        from kofn.errors import KofnError
        from kofn.repeated import Asked

        try:
            item.stash[_ASKED] = Asked.of(marker.args, marker.kwargs, config.getoption("kofn_repeats"))
        except KofnError as problem:
            item.stash[_WRONG] = f"{item.nodeid}: mark kofn: {problem}"
            if not hasattr(config, "workerinput"):
                raise pytest.UsageError(item.stash[_WRONG]) from None


def pytest_runtest_setup(item: pytest.Item) -> None:
    if (problem := item.stash.get(_WRONG, None)) is not None:
        pytest.fail(problem, pytrace=False)


@pytest.fixture
def kofn_score(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Say more of a repeat than pass or fail: kofn_score(0.7), kofn_score(answer="42", cost=0.001, output="...")."""
    going = request.node.stash.get(_GOING, None)
    if going is None:
        return lambda value=None, *, answer=None, cost=None, output=None: None  # noqa: ARG005 - nobody asks
    repeat = going.repeats[-1]

    def record(
        value: float | None = None, *, answer: object = None, cost: float | None = None, output: object = None
    ) -> None:
        __tracebackhide__ = True
        repeat.record(value, answer, cost, output)

    return record


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """A marked test, from its first set-up to its last teardown; its reports are told when all repeats are done."""
    asked = item.stash.get(_ASKED, None)
    if asked is None or item.config.getoption("setuponly", False):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _repeated(item, nextitem, asked):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _repeated(item: pytest.Item, nextitem: pytest.Item | None, asked: Asked) -> list[pytest.TestReport]:
    """The reports of one test: of its set-up, its call and its teardown, each with the time of all repeats."""
    from _pytest.runner import runtestprotocol

    from kofn.repeated import Repeat

    going = item.stash[_GOING] = _Going(asked)
    every: list[list[pytest.TestReport]] = []
    for number in range(1, asked.repeats + 1):
        _refresh(item)
        going.repeats.append(Repeat())
        # the parent stands for "another test of the same place follows", so that wider fixtures stay
        following: Any = nextitem if number == asked.repeats else item.parent
        every.append(runtestprotocol(item, log=False, nextitem=following))
        if not every[-1][0].passed:  # a fixture failed or skipped: so does the test, as any other
            _without_body(item, going, every[-1][0])
            break
    del item.stash[_GOING]
    return _together(going, every)


def _refresh(item: pytest.Item) -> None:
    """A test that has run made as new: the instance of its class, what it printed."""
    if isinstance(item.parent, pytest.Class) and item.__dict__.get("_instance") is not None:
        del item._instance  # type: ignore[attr-defined]
        item._obj = None  # type: ignore[attr-defined]
    item._report_sections.clear()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Note what a repeat came to; in the last, come to what all of them do."""
    going = item.stash.get(_GOING, None)
    if going is None:
        return (yield)
    from time import perf_counter

    problem, returned, start = None, None, perf_counter()
    try:
        returned = yield
    except (KeyboardInterrupt, pytest.exit.Exception):
        raise
    except BaseException as raised:
        problem = raised
    problem = problem or _kept_by_unittest(item)
    _note(going, problem, perf_counter() - start, item)
    if len(going.repeats) == going.asked.repeats:
        problem = _settled(item, going)
    if problem is not None:
        raise problem
    return returned


def _kept_by_unittest(item: pytest.Item) -> BaseException | None:
    """What a method of a unittest.TestCase raised: pytest keeps it aside."""
    kept = item.__dict__.get("_excinfo")
    if not kept:
        return None
    first: BaseException = kept[0].value
    kept.clear()
    return first


def _note(going: _Going, problem: BaseException | None, seconds: float, item: pytest.Item) -> None:
    """What the repeat that has just run came to; what it raised is kept with what it printed."""
    repeat = going.repeats[-1]
    repeat.seconds = seconds
    if problem is None:
        return
    unittest = sys.modules.get("unittest")
    if isinstance(problem, pytest.skip.Exception) or (unittest and isinstance(problem, unittest.SkipTest)):
        repeat.outcome = "skipped"
    elif isinstance(problem, pytest.xfail.Exception):
        repeat.outcome = "xfailed"
    elif isinstance(problem, AssertionError | pytest.fail.Exception):
        repeat.outcome = "failed"
    else:
        repeat.outcome = "error"
    text = str(problem).strip()
    plain = isinstance(problem, pytest.skip.Exception | pytest.xfail.Exception | pytest.fail.Exception)
    repeat.message = text if plain else f"{type(problem).__name__}: {text}" if text else type(problem).__name__
    going.raised[len(going.repeats)] = (problem, list(item._report_sections))


def _settled(item: pytest.Item, going: _Going) -> BaseException | None:
    """What the whole test raises: nothing where all that is required holds, else what a repeat that failed raised."""
    from kofn.repeated import judged

    repeats, asked = going.repeats, going.asked
    graded = [one for one in repeats if one.passed is not None]
    alone = asked.over == "test"
    found = judged(asked, repeats) if graded and alone else ()
    number = _telling(going)
    problem, sections = going.raised[number] if number else (None, list(item._report_sections))
    going.tested = _tested(item, going, found, problem)
    if graded and going.tested.met:
        return None
    item._report_sections[:] = sections
    return problem or pytest.fail.Exception(going.tested.line, pytrace=False)


def _telling(going: _Going) -> int:
    """The repeat whose exception the test raises: the first that failed, one that said xfail if none did; else none.

    A test of which nothing was graded is skipped.
    """
    graded = any(one.passed is not None for one in going.repeats)
    for outcomes in (("failed", "error"), ("xfailed",)) if graded else (("skipped",),):
        for number in going.raised:
            if going.repeats[number - 1].outcome in outcomes:
                return number
    return 0


def _tested(item: pytest.Item, going: _Going, found: tuple[Any, ...], problem: BaseException | None) -> Repeated:
    from kofn.repeated import Repeated, shortened

    name = getattr(item, "originalname", None)
    failure = ""
    if problem is not None and going.asked.over == "cases":
        failure = shortened(str(item.repr_failure(pytest.ExceptionInfo.from_exception(problem))))
    return Repeated(
        test=item.nodeid,
        function=f"{item.parent.nodeid}::{name}" if name and item.parent is not None else item.nodeid,
        repeats=tuple(going.repeats),
        found=found,
        over=going.asked.over,
        requirements=tuple(map(str, going.asked.requirements)),
        failure=failure,
    )


def _without_body(item: pytest.Item, going: _Going, report: pytest.TestReport) -> None:
    """A repeat whose fixtures failed or skipped: not graded, and neither is the test."""
    repeat = going.repeats[-1]
    repeat.outcome = "skipped"
    crash = getattr(report.longrepr, "reprcrash", None)
    reason = crash.message if crash is not None else report.longrepr[-1] if isinstance(report.longrepr, tuple) else ""
    repeat.message = f"set-up {report.outcome}: {reason}"
    going.tested = _tested(item, going, (), None)


def _together(going: _Going, every: list[list[pytest.TestReport]]) -> list[pytest.TestReport]:
    """One report a phase: of the last repeat, but of the first whose teardown failed; with the seconds of all."""
    told = []
    for report in every[-1]:
        same = [one for reports in every for one in reports if one.when == report.when]
        chosen = next((one for one in same if one.failed), report) if report.when == "teardown" else report
        chosen.duration, chosen.start = sum(one.duration for one in same), same[0].start
        told.append(chosen)
    tested = going.tested
    assert tested is not None
    main = next((one for one in told if one.when == "call"), told[0])
    tested = replace(tested, xfailed=main.skipped and hasattr(main, "wasxfail"))
    main.kofn = tested.to_dict()  # type: ignore[attr-defined]  # a report takes what more is to travel with it
    if main.when == "call":
        _explain(main, going, tested)
    for report in told:
        report.user_properties.extend(_properties(tested))
    return told


def _properties(tested: Repeated) -> list[tuple[str, object]]:
    """What JUnit says of a test."""
    counts: list[tuple[str, object]] = [("kofn.repeats", len(tested.repeats)), ("kofn.passes", tested.passes)]
    values = [(f"kofn.{one.name}", "undefined" if one.value is None else f"{one.value:.6g}") for one in tested.found]
    return [*counts, *values, *(("kofn.required", one.requirement) for one in tested.found)]


def _explain(report: pytest.TestReport, going: _Going, tested: Repeated) -> None:
    """Say below a failure what was required, and what each repeat came to."""
    if not report.failed or tested.met:
        return
    number, longrepr = _telling(going), report.longrepr
    telling = [(i, one) for i, one in enumerate(going.repeats, 1) if one.outcome != "passed" or one.value is not None]
    lines = [tested.line] if number else []  # without an exception the line is what was raised
    lines += [f"repeat {i}: {one.outcome}{_why(one)}" for i, one in telling[:_LISTED]]
    lines += [f"and {len(telling) - _LISTED:,} more"] if len(telling) > _LISTED else []
    lines += [f"shown above: repeat {number}"] if number else []
    crash, add = (getattr(longrepr, name, None) for name in ("reprcrash", "addsection"))
    if add is None:  # another plugin shows failures in its own way
        report.longrepr = f"{longrepr}\n{tested.line}"
    elif lines:
        add("kofn", "\n".join(lines))
    if crash is not None:
        crash.message = tested.line


def _why(repeat: Repeat) -> str:
    said = [] if repeat.value is None else [f"score {repeat.value:g}"]
    said += [repeat.message.splitlines()[0]] if repeat.message else []
    return f" ({'; '.join(said)})" if said else ""


class _Gathering:
    """All tests of a session, in the process that reports; with xdist that is not the one that tests."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self._found: list[tuple[int, Repeated]] = []
        self.over: list[Repeated] = []
        self.told = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if (data := getattr(report, "kofn", None)) is not None:
            from kofn.repeated import Repeated

            place = getattr(report, "item_index", len(self._found))  # xdist reports in any order, and says this
            self._found.append((place, Repeated.from_dict(data)))

    @property
    def tests(self) -> list[Repeated]:
        """In the order they were collected."""
        return [tested for _, tested in sorted(self._found, key=lambda pair: pair[0])]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """When all tests are through: what is required over all cases of a function, as a test more."""
        done = yield
        if any(test.over == "cases" for test in self.tests):
            from kofn.repeated import pooled

            self.over = pooled(self.tests)
            session.testscollected += len(self.over)
            for report in (one for tested in self.over for one in _pooled_reports(tested)):
                session.ihook.pytest_runtest_logreport(report=report)
        return done

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        out = self.config.getoption("kofn_out")
        if out is None or self.config.getoption("collectonly", False):
            return
        if not self.tests:
            self.told = f"no test marked kofn has run: {out} is not written"
            return
        from kofn.errors import KofnError
        from kofn.repeated import write

        try:
            write(self.tests, out)
            self.told = f"run written to {out}; open {out / 'report.html'}"
        except KofnError as problem:
            self.told = f"run not written: {problem}"
            session.exitstatus = problem.exit_code

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.tests and not self.told:
            return
        from kofn.present import grid_lines, safe
        from kofn.repeated import summary

        terminalreporter.section("kofn")
        if self.tests:
            every = self.config.get_verbosity() > 0
            grid, left = summary([*self.over, *self.tests], most=None if every else _SHOWN)
            for line in grid_lines(grid, lambda text, _: text):
                terminalreporter.write_line(line, red=line.startswith("✗"))
            if left:
                terminalreporter.write_line(f"and {left:,} more that pass (-v shows them)")
        if self.told:
            terminalreporter.write_line(safe(self.told))


def _pooled_reports(tested: Repeated) -> list[pytest.TestReport]:
    """A function's cases together, as a test: its call, and the teardown at which JUnit closes it."""
    met = bool(tested.found) and tested.met
    outcome: Any = "passed" if met else "failed" if tested.found else "skipped"
    path, _, name = tested.test.partition("::")
    why: Any = None if met else _said(tested) if tested.found else (path, 0, "nothing was graded")
    location = (path, None, name.replace("::", "."))
    about: Any = {"nodeid": tested.test, "location": location, "keywords": {}, "user_properties": _properties(tested)}
    call = pytest.TestReport(**about, outcome=outcome, longrepr=why, when="call")
    return [call, pytest.TestReport(**about, outcome="passed", longrepr=None, when="teardown")]


def _said(tested: Repeated) -> object:
    """A failure in words, with the line that summaries show."""
    try:
        raise pytest.fail.Exception(f"{tested.line}\n\n{tested.failure}", pytrace=False)
    except pytest.fail.Exception as problem:
        shown = pytest.ExceptionInfo.from_exception(problem).getrepr(style="value")
    if shown.reprcrash is not None:
        shown.reprcrash.message = tested.line
    return shown
