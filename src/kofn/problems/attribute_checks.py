"""Compares what a program did in a case with what was expected: a verdict and a diff for every attribute."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kofn.core.escape import escape_unprintable
from kofn.problems.adapters.base import FILES, HEADERS
from kofn.problems.case import AttributeVerdict, CaseOutcome
from kofn.problems.matchers import matcher
from kofn.sandbox.work_folder import UnreadableFile

if TYPE_CHECKING:
    from kofn.problems.adapters.base import Observation
    from kofn.problems.case import AttributeCheck, ProblemCase
    from kofn.sandbox.program import ProcessResult

MAX_REPORTED = 10_000  # characters of a value that a report holds; the whole is in a file
_TAIL = 200
_DEEPEST = 50
VERIFIER = "verifier"


class AuthorError(Exception):
    """The author's own code failed."""


def verify_case(case: ProblemCase, observation: Observation, *, with_verifier: bool = False) -> CaseOutcome:
    """The outcome of a case: every check, then the author's verifier.

    Where the author's own code fails, the attribute is not verified and `harness_error` says why.
    """
    process = observation.process
    verdicts: dict[str, AttributeVerdict] = {}
    harness_error = None
    for check in case.checks:
        try:
            verdicts[check.attribute] = _check_attribute(check, observation)
        except AuthorError as problem:
            harness_error = harness_error or str(problem)
            verdicts[check.attribute] = AttributeVerdict(
                attribute=check.attribute, correct=None, weight=check.weight, diff=harness_error
            )
    if with_verifier and process.stopped is None:
        try:
            verdicts |= _run_verifier(case, observation)
        except AuthorError as problem:
            harness_error = harness_error or str(problem)
    elif with_verifier and not verdicts:
        verdicts["verifier"] = AttributeVerdict(attribute="verifier", correct=False, diff=_describe_ending(process))
    # the beginning of the output and the end of the errors are what says most
    kept = replace(process, output=process.output[:MAX_REPORTED], stderr=process.stderr[-MAX_REPORTED:])
    return CaseOutcome(
        key=case.key, verdicts=tuple(verdicts.values()), process=kept, harness_error=harness_error, log=observation.log
    )


def _check_attribute(check: AttributeCheck, observation: Observation) -> AttributeVerdict:
    actual = observation.attributes.get(check.attribute)
    correct, diff = _compare(check, actual, observation.process)
    expected, whole_expected = _for_report(check.expected)
    reported, whole = _for_report(None if isinstance(actual, UnreadableFile) else actual)
    return AttributeVerdict(
        attribute=check.attribute,
        correct=correct,
        weight=check.weight,
        expected=expected,
        actual=reported,
        diff=diff,
        whole=whole,
        whole_expected=whole_expected,
    )


def _compare(check: AttributeCheck, actual: Any, process: ProcessResult) -> tuple[bool, str]:
    if process.stopped is not None:
        return False, f"stopped: {process.stopped}"
    if isinstance(actual, UnreadableFile):
        return False, f"{_label(check.attribute)}: {actual.reason}"
    if actual is None:
        return False, _with_ending(f"{_label(check.attribute)} is not there", process)
    try:
        match = matcher(check.matcher, check.params)(check.expected, actual)
    except Exception as problem:
        raise AuthorError(f"matcher {check.matcher} failed: {type(problem).__name__}: {problem}"[:500]) from problem
    if match.correct:
        return True, ""
    # of a wrong status the diff says it all, unless the program wrote why
    complete = check.attribute == "status_code" and not process.stderr
    return False, match.diff if complete else _with_ending(match.diff, process)


def _label(attribute: str) -> str:
    for prefix, noun in ((FILES, "file"), (HEADERS, "header")):
        if attribute.startswith(prefix):
            return f"{noun} {attribute.removeprefix(prefix)}"
    return attribute


def _with_ending(diff: str, process: ProcessResult) -> str:
    ending = _describe_ending(process)
    return f"{diff}\n({ending})" if ending else diff


def _describe_ending(process: ProcessResult) -> str:
    """How a program came to an end that was not a good one, with the last line it wrote about it."""
    if process.stopped is not None:
        return f"stopped: {process.stopped}"
    if not process.status:
        return ""
    lines = process.stderr[-4 * _TAIL :].decode(errors="replace").strip().splitlines()
    ending = f"exit status {process.status}" + (
        f", signal {process.status - 128}" if 128 < process.status < 160 else ""
    )
    return f"{ending}; standard error ends: {escape_unprintable(lines[-1][-_TAIL:])}" if lines else ending


def _for_report(value: Any) -> tuple[Any, bytes | None]:
    """A value as a report holds it, and the whole of it where it was cut.

    >>> _for_report(b"ok"), _for_report(b"x" * 20_000)[0][-40:]
    (('ok', None), 'xxxx... (10,000 more characters)')
    """
    if isinstance(value, bytes):
        text = value.decode(errors="backslashreplace")
        whole = value
    elif isinstance(value, str):
        text, whole = value, value.encode(errors="surrogatepass")
    elif isinstance(value, (list, dict)):
        text = json.dumps(value, ensure_ascii=False)
        if len(text) <= MAX_REPORTED:
            return value, None
        whole = text.encode(errors="surrogatepass")
    else:
        return value, None
    if len(text) <= MAX_REPORTED:
        return text, None
    return f"{text[:MAX_REPORTED]}... ({len(text) - MAX_REPORTED:,} more characters)", whole


def _run_verifier(case: ProblemCase, observation: Observation) -> dict[str, AttributeVerdict]:
    """The verdicts of the author's `verify(case, actual)`: attribute -> bool, (bool, diff), a mapping, or None."""
    try:
        returned = importlib.import_module(VERIFIER).verify(dict(case.summary), _for_author(observation))
        if returned is not None and not isinstance(returned, Mapping):
            raise TypeError(f"it returned {returned!r:.100}: expected a mapping of attributes to true, false or none")
        return {str(name): _custom_verdict(_storable(str(name)), value) for name, value in (returned or {}).items()}
    except Exception as problem:
        raise AuthorError(
            f"verifier.py failed on case {case.id!r}: {type(problem).__name__}: {problem}"[:500]
        ) from problem


def _for_author(observation: Observation) -> dict[str, Any]:
    """What was observed, as the author's code gets it: text, and bytes where it is no UTF-8."""
    flat = {name: _text(value) for name, value in observation.attributes.items()}
    nested: dict[str, Any] = {name: value for name, value in flat.items() if "/" not in name}
    for prefix in (FILES, HEADERS):
        nested[prefix.rstrip("/")] = {n.removeprefix(prefix): v for n, v in flat.items() if n.startswith(prefix)}
    return {**nested, "seconds": observation.process.seconds}


def _text(value: Any) -> Any:
    if isinstance(value, UnreadableFile):
        return None
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _storable(value: Any, depth: int = 0) -> Any:
    """A value of the author's as files can hold it; what a program said may be in it.

    >>> _storable({"a": [1, float("nan")], "b": 10**30, "c": "\\ud800", "d": {2, 1}})
    {'a': [1, 'nan'], 'b': '1000000000000000000000000000000', 'c': '\\\\ud800', 'd': '{1, 2}'}
    """
    if value is None or isinstance(value, (bool, bytes)):
        return value
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if depth < _DEEPEST and isinstance(value, Mapping):
        return {_storable(str(name)): _storable(one, depth + 1) for name, one in value.items()}
    if depth < _DEEPEST and isinstance(value, (list, tuple)):
        return [_storable(one, depth + 1) for one in value]
    try:
        return _storable(str(value)[:MAX_REPORTED])
    except Exception as problem:  # a __str__ of the author's, or one too deep
        return f"({type(value).__name__} that cannot be shown: {type(problem).__name__})"


def _custom_verdict(name: str, value: Any) -> AttributeVerdict:
    if value is None or isinstance(value, bool):
        return AttributeVerdict(attribute=name, correct=value)
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], bool):
        return AttributeVerdict(attribute=name, correct=value[0], diff="" if value[0] else _storable(str(value[1])))
    fields: Mapping[str, Any] = dict(value)
    correct = fields.get("correct", fields.get("is_correct"))
    if correct is not None and not isinstance(correct, bool):
        raise TypeError(f"{name}: correct is {correct!r}: expected true, false or none")
    expected, whole_expected = _for_report(_storable(fields.get("expected")))
    actual, whole = _for_report(_storable(fields.get("actual")))
    return AttributeVerdict(
        attribute=name,
        correct=correct,
        weight=float(fields.get("weight", 1.0)),
        expected=expected,
        actual=actual,
        diff="" if correct else _storable(str(fields.get("diff", ""))),
        whole=whole,
        whole_expected=whole_expected,
    )
