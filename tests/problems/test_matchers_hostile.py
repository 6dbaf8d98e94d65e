"""Actual values made to hang, crash or exhaust a matcher: each gets an answer, and soon."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.cpu import cpu_seconds
from tests.waiting import LONGEST

from kofn.errors import WorldError
from kofn.problems.matchers import MAX_CHARACTERS, MAX_LINES, matcher
from kofn.problems.matchers.bounds import IsolationLimitExceeded, run_isolated

SOON = 30.0  # seconds of processor time; what must not happen takes hours
SIZE = 1_000_000


def filled(unit: bytes, before: bytes = b"", after: bytes = b"") -> bytes:
    return before + unit * (SIZE // len(unit)) + after


HOSTILE = {
    "newlines": filled(b"\n"),
    "returns": filled(b"\r"),
    "one long line": filled(b"x"),
    "short lines": filled(b"ab\n"),
    "spaces, then something": filled(b" ", after=b"x"),
    "blank lines": filled(b" \n", after=b"x"),
    "distinct lines": b"\n".join(b"%d" % n for n in range(150_000)),
    "bytes that are no text": filled(b"\xff"),
    "escapes": filled(b"\x1b"),
    "nul": filled(b"\x00"),
    "digits": filled(b"1"),
    "groups of digits": filled(b",111", before=b"111", after=b",1"),
    "fractions": filled(b"1/"),
    "exponents": filled(b"1e"),
    "signs": filled(b"-"),
    "a huge exponent": b"1e999999999",
    "an absurd exponent": b"1e" + b"9" * 100,
    "no number": b"NaN",
    "brackets": filled(b"["),
    "objects": filled(b'{"a":'),
    "closed brackets": filled(b"[", after=b"]" * SIZE),
    "many small lists": filled(b"[],", before=b"[", after=b"[]]"),
    "many small objects": filled(b'{"a":1},', before=b"[", after=b"1]"),
    "one key again and again": filled(b'"a":1,', before=b"{", after=b'"a":1}'),
    "quotes": filled(b'"'),
    "escaped quotes": filled(b'\\"', before=b'"'),
    "backslashes": filled(b"\\"),
    "commas": filled(b","),
    "surrogates": filled(b'\\ud800', before=b'"', after=b'"'),
    "a header with bytes": "\udcff" * 1000,
    "a lone surrogate": "\ud800",
    "a large number": 2**4000,
}  # fmt: skip

MATCHERS = {
    "exact": ("exact", {}, "a\nb\n"),
    "stripped": ("stripped", {}, "a\nb\n"),
    "collapsed": ("stripped", {"ignore_case": True, "collapse": True}, "a b"),
    "lines": ("lines", {"ignore_case": True}, "a\nb"),
    "unordered lines": ("lines", {"ordered": False, "strip": False, "ignore_blank": False}, ["a", "b"]),
    "contains": ("contains", {"ignore_case": True, "absent": ["q"]}, ["z"]),
    "regex": ("regex", {}, r"(z|\s)*q"),
    "regex in part": ("regex", {"full": False}, "[zq]+[^q]*z"),
    "number": ("number", {"tolerance": 1, "relative": 0.1}, 3),
    "number anywhere": ("number", {"anywhere": True}, 77),
    "json": ("json", {"tolerance": 0.1}, {"b": [1]}),
    "json loosely": ("json", {"unordered": True, "tolerance": 0.5, "subset": True, "ignore": ["$[*].b"]}, [[2], 2, 3]),
    "table": ("table", {"tolerance": 0.1}, "p,q\n3,4\n"),
    "table loosely": ("table", {"header": False, "ordered": False}, "p,q\n3,4\n"),
    "hash": ("hash", {}, "0" * 64),
    "schema": ("schema", {}, {"type": "object", "required": ["b"], "properties": {"b": {"uniqueItems": True}}}),
}


@pytest.mark.programs(quick=30)
@pytest.mark.parametrize("case", MATCHERS.values(), ids=MATCHERS)
@pytest.mark.parametrize("actual", HOSTILE.values(), ids=HOSTILE)
def test_hostile_values_are_wrong_soon_and_in_few_words(case, actual):
    name, params, expected = case
    matches = []
    assert cpu_seconds(lambda: matches.append(matcher(name, params)(expected, actual))) < SOON
    (match,) = matches
    assert not match.correct
    assert 0 < len(match.diff) <= MAX_CHARACTERS
    assert match.diff.count("\n") < MAX_LINES
    assert all(line.isprintable() for line in match.diff.split("\n"))


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ("a\n" * 4_000_000, b"b\n" * 4_000_000),
        ("ab" * 4_000_000, b"ab" * 3_999_999 + b"ac"),
        ("x\ny\n" * 1_000, b"y\nx\n" * 1_000_000),
    ],
    ids=["every line", "the end of one line", "lines moved"],
)
def test_eight_megabytes_against_eight_megabytes_are_compared_in_a_moment(expected, actual):
    matches = []
    assert cpu_seconds(lambda: matches.append(matcher("exact")(expected, actual))) < SOON
    assert matches[0].diff.startswith("--- expected\n+++ found\n@@ line 1 @@\n")


@pytest.mark.long
def test_large_texts_that_are_right_are_found_right():
    text = "".join(f"{n} \n" for n in range(200_000))
    data = [{"n": n, "text": "[{,"} for n in range(100_000)]
    for name, expected, actual in (
        ("exact", text, text.encode()),
        ("stripped", text, text.replace(" \n", "\r\n").encode()),
        ("lines", text, text.encode()),
        ("table", text, text.encode()),
        ("json", data, json.dumps(data, indent=1).encode()),
    ):
        assert matcher(name)(expected, actual).correct, name


# work in a process of its own


def test_work_apart_is_ended_when_its_time_its_memory_or_its_stack_is_up():
    for body, limit, reason in (
        ("while True: pass", 0.3, "took longer than 0.3 s"),
        ("import time; time.sleep(999)", 0.3, "took longer than 0.3 s"),
        ("x = bytearray(10 ** 10)", LONGEST, "needed more than 1 GB of memory, or too deep a stack"),
        ("def f(): return f()\nf()", LONGEST, "needed more than 1 GB of memory, or too deep a stack"),
        ("import os; os.kill(os.getpid(), 11)", LONGEST, "ended by signal 11"),
    ):
        with pytest.raises(IsolationLimitExceeded) as caught:
            run_isolated(body, b"", limit)
        assert str(caught.value) == reason


def test_work_apart_keeps_to_a_lower_limit_of_memory_that_is_set_already():
    code = """
import resource
from kofn.problems.matchers.bounds import IsolationLimitExceeded, run_isolated
resource.setrlimit(resource.RLIMIT_AS, (500_000_000, 500_000_000))
print(run_isolated("sys.stdout.write('done')", b"", 120.0))
try:
    run_isolated("x = bytearray(600_000_000)", b"", 120.0)
except IsolationLimitExceeded:
    print("too much")
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "b'done'\ntoo much\n"


def test_work_apart_that_fails_otherwise_is_a_bug_and_shows():
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        run_isolated("1 / 0", b"", 120.0)


def test_an_interpreter_that_cannot_start_is_a_failure_of_the_world(monkeypatch):
    monkeypatch.setattr("sys.executable", "/no/such/python")
    with pytest.raises(WorldError, match="cannot start /no/such/python"):
        run_isolated("pass", b"", 120.0)
