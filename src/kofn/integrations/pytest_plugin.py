"""The pytest plugin: a test marked `@pytest.mark.kofn(repeats=5, ...)` runs n times and passes by its aggregate.

Every repeat has its own set-up and teardown, so function-scoped fixtures and the instance of a class are new each time;
wider fixtures are shared. pytest sees one test: its outcome is decided in the call of the last repeat, which raises the
exception of the first failing repeat, or nothing. So xfail, --pdb, -x, JUnit and xdist work as they do for any test.

pytest loads this module in every session of whoever has kofn installed. So all of kofn is imported in functions, once
a test is marked.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from kofn.integrations.repeated_tests import Repeat, RepeatedTest, RepeatRequest

    Section = tuple[str, str, str]

_SUMMARISED = 20  # passing tests in the summary, unless -v
_LISTED = 10  # repeats below a failure


@dataclass
class _RunningTest:
    """A marked test while it runs. `raised` is, by repeat, the exception and what was printed."""

    request: RepeatRequest
    repeats: list[Repeat] = field(default_factory=list)
    raised: dict[int, tuple[BaseException, list[Section]]] = field(default_factory=dict)
    result: RepeatedTest | None = None


_REQUEST: pytest.StashKey[RepeatRequest] = pytest.StashKey()
_MARKER_ERROR: pytest.StashKey[str] = pytest.StashKey()
_RUNNING: pytest.StashKey[_RunningTest] = pytest.StashKey()


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
        config.pluginmanager.register(_SessionResults(config), "kofn-gathering")
    out = config.getoption("kofn_out")
    if out is not None:
        from kofn.errors import KofnError
        from kofn.runs.files import check_new

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
        from kofn.integrations.repeated_tests import RepeatRequest

        try:
            item.stash[_REQUEST] = RepeatRequest.of(marker.args, marker.kwargs, config.getoption("kofn_repeats"))
        except KofnError as problem:
            item.stash[_MARKER_ERROR] = f"{item.nodeid}: mark kofn: {problem}"
            if not hasattr(config, "workerinput"):
                raise pytest.UsageError(item.stash[_MARKER_ERROR]) from None


def pytest_runtest_setup(item: pytest.Item) -> None:
    if (problem := item.stash.get(_MARKER_ERROR, None)) is not None:
        pytest.fail(problem, pytrace=False)


@pytest.fixture
def kofn_score(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Say more of a repeat than pass or fail: kofn_score(0.7), kofn_score(answer="42", cost=0.001, output="...")."""
    running = request.node.stash.get(_RUNNING, None)
    if running is None:
        return lambda value=None, *, answer=None, cost=None, output=None: None  # noqa: ARG005 - the test is not marked
    repeat = running.repeats[-1]

    def record(
        value: float | None = None, *, answer: object = None, cost: float | None = None, output: object = None
    ) -> None:
        __tracebackhide__ = True
        repeat.record(value, answer, cost, output)

    return record


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a marked test, from its first set-up to its last teardown; reports are sent when all repeats are done."""
    request = item.stash.get(_REQUEST, None)
    if request is None or item.config.getoption("setuponly", False):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _run_repeats(item, nextitem, request):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _run_repeats(item: pytest.Item, nextitem: pytest.Item | None, request: RepeatRequest) -> list[pytest.TestReport]:
    """The reports of one test: of its set-up, its call and its teardown, each with the time of all repeats."""
    from _pytest.runner import runtestprotocol

    from kofn.integrations.repeated_tests import Repeat

    running = item.stash[_RUNNING] = _RunningTest(request)
    every: list[list[pytest.TestReport]] = []
    for number in range(1, request.repeats + 1):
        if isinstance(item.parent, pytest.Class) and item.__dict__.get("_instance") is not None:  # of the last repeat
            del item._instance  # type: ignore[attr-defined]
            item._obj = None  # type: ignore[attr-defined]
        item._report_sections.clear()
        running.repeats.append(Repeat())
        # the parent as the next item means "another test of the same place follows", so that wider fixtures stay
        following: Any = nextitem if number == request.repeats else item.parent
        every.append(runtestprotocol(item, log=False, nextitem=following))
        if not every[-1][0].passed:  # a fixture failed or skipped: so does the test, as any other
            _setup_failed(item, running, every[-1][0])
            break
    del item.stash[_RUNNING]
    return _merge_reports(running, every)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Record the outcome of a repeat; in the last repeat, decide that of the test."""
    running = item.stash.get(_RUNNING, None)
    if running is None:
        return (yield)
    problem, returned, start = None, None, perf_counter()
    try:
        returned = yield
    except (KeyboardInterrupt, pytest.exit.Exception):
        raise
    except BaseException as raised:
        problem = raised
    problem = problem or _unittest_problem(item)
    _record_repeat(running, problem, perf_counter() - start, item)
    if len(running.repeats) == running.request.repeats:
        problem = _outcome_of(item, running)
    if problem is not None:
        raise problem
    return returned


def _unittest_problem(item: pytest.Item) -> BaseException | None:
    """The exception of a method of a unittest.TestCase, which pytest stores on the item instead of raising it."""
    stored = item.__dict__.get("_excinfo")
    if not stored:
        return None
    first: BaseException = stored[0].value
    stored.clear()
    return first


def _record_repeat(running: _RunningTest, problem: BaseException | None, seconds: float, item: pytest.Item) -> None:
    """Record the outcome of the repeat that has just run, and its exception with what it printed."""
    repeat = running.repeats[-1]
    repeat.seconds = seconds
    if problem is None:
        return
    unittest = sys.modules.get("unittest")  # a SkipTest can only come from a module that somebody has imported
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
    running.raised[len(running.repeats)] = (problem, list(item._report_sections))


def _outcome_of(item: pytest.Item, running: _RunningTest) -> BaseException | None:
    """The exception of the whole test: none where all requirements are met, else that of a repeat that failed."""
    from kofn.integrations.repeated_tests import check_requirements

    repeats, request = running.repeats, running.request
    graded = [one for one in repeats if one.passed is not None]
    results = check_requirements(request, repeats) if graded and request.over == "test" else ()
    number = _failing_repeat(running)
    problem, sections = running.raised[number] if number else (None, list(item._report_sections))
    running.result = _repeated_test(item, running, results, problem)
    if graded and running.result.met:
        return None
    item._report_sections[:] = sections
    return problem or pytest.fail.Exception(running.result.line, pytrace=False)


def _failing_repeat(running: _RunningTest) -> int:
    """The repeat whose exception the test raises: the first that failed, one that said xfail if none did; else none.

    A test of which nothing was graded is skipped.
    """
    graded = any(one.passed is not None for one in running.repeats)
    for outcomes in (("failed", "error"), ("xfailed",)) if graded else (("skipped",),):
        for number in running.raised:
            if running.repeats[number - 1].outcome in outcomes:
                return number
    return 0


def _repeated_test(
    item: pytest.Item, running: _RunningTest, results: tuple[Any, ...], problem: BaseException | None
) -> RepeatedTest:
    from kofn.integrations.repeated_tests import RepeatedTest, truncate

    name = getattr(item, "originalname", None)
    failure = ""
    if problem is not None and running.request.over == "cases":
        failure = truncate(str(item.repr_failure(pytest.ExceptionInfo.from_exception(problem))))
    return RepeatedTest(
        test=item.nodeid,
        function=f"{item.parent.nodeid}::{name}" if name and item.parent is not None else item.nodeid,
        repeats=tuple(running.repeats),
        results=results,
        over=running.request.over,
        requirements=tuple(map(str, running.request.requirements)),
        failure=failure,
    )


def _setup_failed(item: pytest.Item, running: _RunningTest, report: pytest.TestReport) -> None:
    """Record a repeat whose fixtures failed or skipped: it is not graded, and neither is the test."""
    repeat = running.repeats[-1]
    repeat.outcome = "skipped"
    crash = getattr(report.longrepr, "reprcrash", None)
    reason = crash.message if crash is not None else report.longrepr[-1] if isinstance(report.longrepr, tuple) else ""
    repeat.message = f"set-up {report.outcome}: {reason}"
    running.result = _repeated_test(item, running, (), None)


def _merge_reports(running: _RunningTest, every: list[list[pytest.TestReport]]) -> list[pytest.TestReport]:
    """One report per phase: of the last repeat, but of the first whose teardown failed; with the seconds of all."""
    merged = []
    for report in every[-1]:
        same = [one for reports in every for one in reports if one.when == report.when]
        main = next((one for one in same if one.failed), report) if report.when == "teardown" else report
        main.duration, main.start = sum(one.duration for one in same), same[0].start
        merged.append(main)
    result = running.result
    assert result is not None
    main = next((one for one in merged if one.when == "call"), merged[0])
    result = replace(result, xfailed=main.skipped and hasattr(main, "wasxfail"))
    main.kofn = result.to_dict()  # type: ignore[attr-defined]  # xdist sends all attributes of a report
    if main.when == "call":
        _explain(main, running, result)
    for report in merged:
        report.user_properties.extend(_properties(result))
    return merged


def _properties(result: RepeatedTest) -> list[tuple[str, object]]:
    """The properties of a test in JUnit."""
    counts: list[tuple[str, object]] = [("kofn.repeats", len(result.repeats)), ("kofn.passes", result.passes)]
    values = [(f"kofn.{one.name}", "undefined" if one.value is None else f"{one.value:.6g}") for one in result.results]
    return [*counts, *values, *(("kofn.required", one.requirement) for one in result.results)]


def _explain(report: pytest.TestReport, running: _RunningTest, result: RepeatedTest) -> None:
    """Add to a failure the requirements that are not met, and the outcome of each repeat."""
    if not report.failed or result.met:
        return
    number, longrepr = _failing_repeat(running), report.longrepr
    notable = [(i, one) for i, one in enumerate(running.repeats, 1) if one.outcome != "passed" or one.value is not None]
    lines = [result.line] if number else []  # without an exception of a repeat the line itself was raised
    for i, one in notable[:_LISTED]:
        parts = [] if one.value is None else [f"score {one.value:g}"]
        parts += one.message.splitlines()[:1]
        lines.append(f"repeat {i}: {one.outcome}" + (f" ({'; '.join(parts)})" if parts else ""))
    lines += [f"and {len(notable) - _LISTED:,} more"] if len(notable) > _LISTED else []
    lines += [f"shown above: repeat {number}"] if number else []
    crash, add = (getattr(longrepr, name, None) for name in ("reprcrash", "addsection"))
    if add is None:  # another plugin shows failures in its own way
        report.longrepr = f"{longrepr}\n{result.line}"
    elif lines:
        add("kofn", "\n".join(lines))
    if crash is not None:
        crash.message = result.line


class _SessionResults:
    """All marked tests of a session, in the process that reports; with xdist that is not the one that runs tests."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self._received: list[tuple[int, RepeatedTest]] = []
        self.over: list[RepeatedTest] = []
        self.message = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if (data := getattr(report, "kofn", None)) is not None:
            from kofn.integrations.repeated_tests import RepeatedTest

            place = getattr(report, "item_index", len(self._received))  # xdist reports in any order, with the index
            self._received.append((place, RepeatedTest.from_dict(data)))

    @property
    def tests(self) -> list[RepeatedTest]:
        """In the order they were collected."""
        return [result for _, result in sorted(self._received, key=lambda pair: pair[0])]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """When all tests have run: the requirements over all cases of a function, as one more test each."""
        done = yield
        if any(test.over == "cases" for test in self.tests):
            from kofn.integrations.repeated_tests import pooled

            self.over = pooled(self.tests)
            session.testscollected += len(self.over)
            for report in (one for result in self.over for one in _pooled_reports(result)):
                session.ihook.pytest_runtest_logreport(report=report)
        return done

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        out = self.config.getoption("kofn_out")
        if out is None or self.config.getoption("collectonly", False):
            return
        if not self.tests:
            self.message = f"no test marked kofn has run: {out} is not written"
            return
        from kofn.errors import KofnError
        from kofn.integrations.repeated_tests import write_tests

        try:
            write_tests(self.tests, out)
            self.message = f"run written to {out}; open {out / 'report.html'}"
        except KofnError as problem:
            self.message = f"run not written: {problem}"
            session.exitstatus = problem.exit_code

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.tests and not self.message:
            return
        from kofn.core.document import grid_lines
        from kofn.core.escape import escape_controls
        from kofn.integrations.repeated_tests import summary_grid

        terminalreporter.section("kofn")
        if self.tests:
            every = self.config.get_verbosity() > 0
            grid, left = summary_grid([*self.over, *self.tests], most=None if every else _SUMMARISED)
            for line in grid_lines(grid, lambda text, _: text):
                terminalreporter.write_line(line, red=line.startswith("✗"))
            if left:
                terminalreporter.write_line(f"and {left:,} more that pass (-v shows them)")
        if self.message:
            terminalreporter.write_line(escape_controls(self.message))


def _pooled_reports(result: RepeatedTest) -> list[pytest.TestReport]:
    """A function's cases together, as a test: its call, and the teardown at which JUnit closes it."""
    met = bool(result.results) and result.met
    outcome: Any = "passed" if met else "failed" if result.results else "skipped"
    path, _, name = result.test.partition("::")
    why: Any = None if met else _failure_of(result) if result.results else (path, 0, "nothing was graded")
    location = (path, None, name.replace("::", "."))
    about: Any = {"nodeid": result.test, "location": location, "keywords": {}, "user_properties": _properties(result)}
    call = pytest.TestReport(**about, outcome=outcome, longrepr=why, when="call")
    return [call, pytest.TestReport(**about, outcome="passed", longrepr=None, when="teardown")]


def _failure_of(result: RepeatedTest) -> object:
    """The failure of a function's cases, with the line that summaries show."""
    try:
        raise pytest.fail.Exception(f"{result.line}\n\n{result.failure}", pytrace=False)
    except pytest.fail.Exception as problem:
        failure = pytest.ExceptionInfo.from_exception(problem).getrepr(style="value")
    if failure.reprcrash is not None:
        failure.reprcrash.message = result.line
    return failure
