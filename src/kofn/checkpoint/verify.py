"""What was observed against what was expected: a verdict and a diff for every attribute."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kofn.checkpoint.adapters.base import FILES, HEADERS
from kofn.checkpoint.folder import Oddity
from kofn.checkpoint.matchers import matcher
from kofn.checkpoint.matchers.shown import visible
from kofn.checkpoint.work import Checked, Done

if TYPE_CHECKING:
    from kofn.checkpoint.adapters.base import Observed
    from kofn.checkpoint.work import Check, Ended, Job

MOST = 10_000  # characters of a value that a report holds; the whole is in a file
_TAIL = 200
_DEEPEST = 50
VERIFIER = "verifier"


class AuthorError(Exception):
    """The author's own code failed."""


def verified(job: Job, seen: Observed, *, with_verifier: bool = False) -> Done:
    """Every check of a job. Where the author's code fails, the attribute is not verified and `broken` says so."""
    found: dict[str, Checked] = {}
    broken = None
    for check in job.checks:
        try:
            found[check.attribute] = _checked(check, seen)
        except AuthorError as problem:
            broken = broken or str(problem)
            found[check.attribute] = Checked(attribute=check.attribute, correct=None, weight=check.weight, diff=broken)
    if with_verifier and seen.ended.stopped is None:
        try:
            found |= _by_verifier(job, seen)
        except AuthorError as problem:
            broken = broken or str(problem)
    elif with_verifier and not found:
        found["verifier"] = Checked(attribute="verifier", correct=False, diff=_story(seen.ended))
    ended = replace(seen.ended, output=seen.ended.output[:MOST], stderr=seen.ended.stderr[-MOST:])
    return Done(key=job.key, checked=tuple(found.values()), ended=ended, broken=broken, log=seen.log)


def _checked(check: Check, seen: Observed) -> Checked:
    actual = seen.attributes.get(check.attribute)
    correct, diff = _verdict(check, actual, seen.ended)
    expected, whole_expected = _kept(check.expected)
    shown, whole = _kept(None if isinstance(actual, Oddity) else actual)
    return Checked(
        attribute=check.attribute,
        correct=correct,
        weight=check.weight,
        expected=expected,
        actual=shown,
        diff=diff,
        whole=whole,
        whole_expected=whole_expected,
    )


def _verdict(check: Check, actual: Any, ended: Ended) -> tuple[bool, str]:
    if ended.stopped is not None:
        return False, f"stopped: {ended.stopped}"
    if isinstance(actual, Oddity):
        return False, f"{_noun(check.attribute)}: {actual.reason}"
    if actual is None:
        return False, _with_story(f"{_noun(check.attribute)} is not there", ended)
    try:
        match = matcher(check.matcher, check.params)(check.expected, actual)
    except Exception as problem:
        raise AuthorError(f"matcher {check.matcher} failed: {type(problem).__name__}: {problem}"[:500]) from problem
    if match.correct:
        return True, ""
    told = check.attribute == "status_code" and not ended.stderr  # the status is all there is to tell
    return False, match.diff if told else _with_story(match.diff, ended)


def _noun(attribute: str) -> str:
    for prefix, noun in ((FILES, "file"), (HEADERS, "header")):
        if attribute.startswith(prefix):
            return f"{noun} {attribute.removeprefix(prefix)}"
    return attribute


def _with_story(diff: str, ended: Ended) -> str:
    story = _story(ended)
    return f"{diff}\n({story})" if story else diff


def _story(ended: Ended) -> str:
    """How a program came to an end that was not a good one, with the last line it wrote about it."""
    if ended.stopped is not None:
        return f"stopped: {ended.stopped}"
    if not ended.status:
        return ""
    lines = ended.stderr[-4 * _TAIL :].decode(errors="replace").strip().splitlines()
    told = f"exit status {ended.status}" + (f", signal {ended.status - 128}" if 128 < ended.status < 160 else "")
    return f"{told}; standard error ends: {visible(lines[-1][-_TAIL:])}" if lines else told


def _kept(value: Any) -> tuple[Any, bytes | None]:
    """A value as a report holds it, and the whole of it where it was cut.

    >>> _kept(b"ok"), _kept(b"x" * 20_000)[0][-40:]
    (('ok', None), 'xxxx... (10,000 more characters)')
    """
    if isinstance(value, bytes):
        text = value.decode(errors="backslashreplace")
        whole = value
    elif isinstance(value, str):
        text, whole = value, value.encode(errors="surrogatepass")
    elif isinstance(value, (list, dict)):
        import json

        text = json.dumps(value, ensure_ascii=False)
        if len(text) <= MOST:
            return value, None
        whole = text.encode(errors="surrogatepass")
    else:
        return value, None
    if len(text) <= MOST:
        return text, None
    return f"{text[:MOST]}... ({len(text) - MOST:,} more characters)", whole


def _by_verifier(job: Job, seen: Observed) -> dict[str, Checked]:
    """What the author's `verify(case, actual)` says: attribute -> bool, (bool, diff), a mapping, or None."""
    try:
        told = importlib.import_module(VERIFIER).verify(dict(job.told), _plain(seen))
        if told is not None and not isinstance(told, Mapping):
            raise TypeError(f"it returned {told!r:.100}: expected a mapping of attributes to true, false or none")
        return {str(name): _own(_tame(str(name)), value) for name, value in (told or {}).items()}
    except Exception as problem:
        raise AuthorError(
            f"verifier.py failed on case {job.id!r}: {type(problem).__name__}: {problem}"[:500]
        ) from problem


def _plain(seen: Observed) -> dict[str, Any]:
    """What was observed, as the author's code gets it: text, and bytes where it is no UTF-8."""
    flat = {name: _text(value) for name, value in seen.attributes.items()}
    nested: dict[str, Any] = {name: value for name, value in flat.items() if "/" not in name}
    for prefix in (FILES, HEADERS):
        nested[prefix.rstrip("/")] = {n.removeprefix(prefix): v for n, v in flat.items() if n.startswith(prefix)}
    return {**nested, "seconds": seen.ended.seconds}


def _text(value: Any) -> Any:
    if isinstance(value, Oddity):
        return None
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _tame(value: Any, depth: int = 0) -> Any:
    """A value of the author's as files can hold it; what a program said may be in it.

    >>> _tame({"a": [1, float("nan")], "b": 10**30, "c": "\\ud800", "d": {2, 1}})
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
        return {_tame(str(name)): _tame(one, depth + 1) for name, one in value.items()}
    if depth < _DEEPEST and isinstance(value, (list, tuple)):
        return [_tame(one, depth + 1) for one in value]
    try:
        return _tame(str(value)[:MOST])
    except Exception as problem:  # a __str__ of the author's, or one too deep
        return f"({type(value).__name__} that cannot be shown: {type(problem).__name__})"


def _own(name: str, value: Any) -> Checked:
    if value is None or isinstance(value, bool):
        return Checked(attribute=name, correct=value)
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], bool):
        return Checked(attribute=name, correct=value[0], diff="" if value[0] else _tame(str(value[1])))
    told: Mapping[str, Any] = dict(value)
    correct = told.get("correct", told.get("is_correct"))
    if correct is not None and not isinstance(correct, bool):
        raise TypeError(f"{name}: correct is {correct!r}: expected true, false or none")
    expected, whole_expected = _kept(_tame(told.get("expected")))
    actual, whole = _kept(_tame(told.get("actual")))
    return Checked(
        attribute=name,
        correct=correct,
        weight=float(told.get("weight", 1.0)),
        expected=expected,
        actual=actual,
        diff="" if correct else _tame(str(told.get("diff", ""))),
        whole=whole,
        whole_expected=whole_expected,
    )
