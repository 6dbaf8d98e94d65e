"""Texts: exact, stripped, lines, contains, regex, and the diffs of lines."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kofn.problems.matchers import (
    NO_NEWLINE,
    common_prefix,
    compare_lines,
    first_lines,
    matcher,
    preview_lines,
    truncate_around_difference,
)
from kofn.problems.matchers.plain_text import (
    ContainsMatcher,
    ExactMatcher,
    LinesMatcher,
    RegexMatcher,
    StrippedMatcher,
    split_lines,
)


@pytest.mark.parametrize(
    ("expected", "actual", "correct"),
    [
        ("a\n", b"a\n", True),
        ("a", b"a\n", False),
        ("a", b"A", False),
        ("é", "é".encode(), True),
        ("é", "e\u0301".encode(), False),
        ("a\n", b"a\r\n", False),
        ("", b"", True),
        ("a", b"\xef\xbb\xbfa", False),
        ("\ufeffa", b"\xef\xbb\xbfa", True),
        (b"\xff\x00", b"\xff\x00", True),
        (b"\xff\x00", b"\xff", False),
        (0, 0, True),
        (0, 1, False),
        (0.0, 0, True),
        ("0", 0, True),
        ("zero", 0, False),
        (0, b"0", True),
        (1.5, b"1.5", True),
        (200, "200", True),
        ("text/html", "text/html", True),
        ("text/html", "text/HTML", False),
    ],
)
def test_exact(expected, actual, correct):
    assert ExactMatcher()(expected, actual).correct is correct


def test_a_number_of_thousands_of_digits_is_text_too():
    assert ExactMatcher()(10**5000, b"1" + b"0" * 5000).correct


@pytest.mark.parametrize(
    ("params", "expected", "actual", "correct"),
    [
        ({}, "a\nb", b"a \t\r\nb\r\n", True),
        ({}, "a\nb", b"\n \n\na\nb\n\n\n", True),
        ({}, "  a", b"\n  a\n", True),
        ({}, "  a", b"a", False),
        ({}, "a\nb", b"a\n\nb", False),
        ({}, "a b", b"a  b", False),
        ({}, "a", b"A", False),
        ({}, "", b" \n\n", True),
        ({}, "a", b"\xef\xbb\xbfa\n", True),
        ({}, b"\xef\xbb\xbfa\n", b"a", True),
        ({}, "a\rb", b"a\nb", False),
        ({"collapse": True}, "a b\nc", b"\ta\n\nb c ", True),
        ({"collapse": True}, "a b", b"ab", False),
        ({"collapse": True}, "a b", b"a b c", False),
        ({"ignore_case": True}, "Straße", b"STRASSE", True),
        ({"ignore_case": True, "collapse": True}, "A  b", b"a\nB", True),
        ({}, 3, b"3\n", True),
        ({}, "0", 0, True),
    ],
)
def test_stripped(params, expected, actual, correct):
    assert StrippedMatcher(**params)(expected, actual).correct is correct


@pytest.mark.parametrize(
    ("params", "expected", "actual", "correct"),
    [
        ({}, ["a", "b"], b"  a\n\nb\n", True),
        ({}, "a\nb\n", b"a\r\nb", True),
        ({}, ["b", "a"], b"a\nb", False),
        ({}, [1, 2.5], b"1\n2.5\n", True),
        ({}, ["a", "a"], b"a", False),
        ({}, [], b"\n \n", True),
        ({}, ["a\nb"], b"a\nb", True),
        ({"strip": False}, ["a"], b" a", False),
        ({"strip": False}, ["a"], b"\na\r\n", True),
        ({"ignore_blank": False}, ["a", "b"], b"a\n\nb", False),
        ({"ignore_blank": False}, ["a", "", "b"], b"a\n \nb", True),
        ({"ignore_case": True}, ["A"], b"a", True),
        ({"ordered": False}, ["b", "a", "b"], b"b\nb\na", True),
        ({"ordered": False}, ["b", "a", "b"], b"b\na\na", False),
        ({"ordered": False, "ignore_case": True}, ["b", "A"], b"a\nB", True),
    ],
)
def test_lines(params, expected, actual, correct):
    assert LinesMatcher(**params)(expected, actual).correct is correct


def test_lines_without_order_say_which_are_missing_and_which_are_not_expected():
    match = LinesMatcher(ordered=False)(["a", "b", "b", "c"], b"c\nd\nd\na\n e\n")
    assert match.diff == "missing: b (2 times)\nnot expected: d (2 times)\nnot expected: e"


def test_far_too_many_lines_without_order_are_not_said_to_lack_any():
    diff = LinesMatcher(ordered=False)(["last"], b"x\n" * 200_000 + b"last\n").diff
    assert diff == "1 line expected, more than 100,001 found\nnot expected: x (100,001 times)"


@pytest.mark.parametrize(
    ("params", "expected", "actual", "correct"),
    [
        ({}, "b", b"abc", True),
        ({}, ["a", "c"], b"abc", True),
        ({}, ["a", "d"], b"abc", False),
        ({}, "B", b"abc", False),
        ({"ignore_case": True}, "B", b"abc", True),
        ({}, "b\nc", b"a\nb\nc", True),
        ({"absent": ["x"]}, "b", b"abc", True),
        ({"absent": ["a"]}, "b", b"abc", False),
        ({"absent": ["x"]}, [], b"abc", True),
        ({"absent": ["A"], "ignore_case": True}, [], b"abc", False),
        ({}, 42, b"it is 42", True),
    ],
)
def test_contains(params, expected, actual, correct):
    assert ContainsMatcher(**params)(expected, actual).correct is correct


@pytest.mark.parametrize(
    ("params", "pattern", "actual", "correct"),
    [
        ({}, r"\d+", b"12\n", True),
        ({}, r"\d+", b"12\r\n", True),
        ({}, r"\d+\n", b"12\n", True),
        ({}, r"\d+", b"12\n\n", False),
        ({}, r"\d+", b"a 12", False),
        ({}, r"(\d+\n)+", b"1\n2\n", True),
        ({"full": False}, r"\d+", b"a 12", True),
        ({"full": False}, r"^b", b"a\nb", False),
        ({"full": False, "multiline": True}, r"^b", b"a\nb", True),
        ({}, "a.b", b"a\nb", False),
        ({"dotall": True}, "a.b", b"a\nb", True),
        ({}, "a", b"A", False),
        ({"ignore_case": True}, "(a)+", b"aA", True),
        ({}, b"a|b\n", b"b", True),
        ({}, "a b", b"a b", True),
        ({}, "(?x) ( a ) +", b"aa", True),
        ({}, "(?:.)+", b"\xff\xc3\xa9", True),
        ({}, "[0-9]{3}", 404, True),
        ({}, "[[a]", b"a", True),
        ({}, "\ud800|a", b"a", True),
    ],
)
def test_regex(params, pattern, actual, correct):
    assert RegexMatcher(**params)(pattern, actual).correct is correct


def test_a_regex_with_many_ways_to_match_is_ended_when_its_time_is_up():
    for pattern in ("(a+)+b", "(a|a)*b", "(?x) (a+) +b", "a?" * 40 + "b"):
        assert RegexMatcher(limit=0.2)(pattern, b"a" * 39).diff.startswith(
            f"matching {pattern} took longer than 0.2 s\n"
        )


# diffs


def test_what_cannot_be_seen_is_made_visible():
    diff = ExactMatcher()("a \nb\tc\nd\ne\n", b"a\nb c\nd\r\ne").diff
    assert diff.split("\n") == [
        "--- expected",
        "+++ found",
        "@@ line 1 @@",
        "-a·",
        "-b\\tc",
        "-d",
        "+a",
        "+b c",
        "+d\\r",
        " e",
        "+\\ no newline at the end",
    ]


def test_a_character_that_looks_like_another_is_named():
    assert ExactMatcher()("caf\u00e9\n", "cafe\u0301\n".encode()).diff.endswith(
        "\n? column 4: U+00E9 is expected, U+0065 is found"
    )
    assert ExactMatcher()("a\n", "\u0430\n".encode()).diff.endswith("\n? column 1: U+0061 is expected, U+0430 is found")
    assert ExactMatcher()("a\n", b"\xe9\n").diff.endswith(
        "\n-a\n+\\xe9\n? column 1: U+0061 is expected, byte E9 is found"
    )
    assert "?" not in ExactMatcher()("a\n", b"b\n").diff


def test_a_diff_begins_shortly_before_the_first_difference_and_skips_what_is_the_same():
    lines = [str(n) for n in range(100)]
    found = [*lines[:50], "x", *lines[51:60], "y", *lines[60:]]
    assert compare_lines(lines, found).diff.split("\n") == [
        *("--- expected", "+++ found", "@@ line 51 @@", " 48", " 49", "-50", "+x", " 51", " 52"),
        *("@@ 5 lines are the same @@", " 58", " 59", "+y", " 60", " 61"),
    ]


def test_long_lines_are_cut_so_that_their_difference_shows():
    diff = ExactMatcher()("x" * 9000 + "A" + "y" * 9000, b"x" * 9000 + b"B" + b"y" * 9000).diff.split("\n")
    assert diff[3].startswith("-...xxx")
    assert diff[4].startswith("+...xxx")
    assert "A" in diff[3]
    assert "B" in diff[4]
    assert diff[3].endswith("y... (8,801 more characters)")


def test_lines_beyond_the_window_are_counted():
    expected = "".join(f"{n}\n" for n in range(1000))
    diff = ExactMatcher()(expected, b"x\n" * 3000).diff
    assert diff.endswith("... 344 more lines; 800 further lines expected and 2,800 found were not compared")
    diff = ExactMatcher()("a\n", b"x\n" * 300_000).diff
    assert diff.endswith("0 further lines expected and 299,800 or more found were not compared")


@given(text=st.text("ab\n", max_size=30), n=st.integers(0, 5))
def test_first_lines_lose_nothing(text, n):
    lines, unread = first_lines(text, n)
    whole = "".join(f"{line}\n" for line in lines if line != NO_NEWLINE)
    assert unread == 0
    assert (whole if NO_NEWLINE not in lines else whole[:-1]) == text


@given(one=st.text("ab", max_size=20), other=st.text("ab", max_size=20))
def test_the_common_prefix_is_the_longest(one, other):
    n = common_prefix(one, other)
    assert one[:n] == other[:n]
    assert one[n : n + 1] != other[n : n + 1] or one == other


@given(prefix=st.integers(0, 3000), one=st.text("ab", min_size=1), other=st.text("ab", min_size=1))
@settings(max_examples=50)
def test_two_texts_cut_alike_differ_as_the_texts_do(prefix, one, other):
    left, right = truncate_around_difference("x" * prefix + one, "x" * prefix + other, 90)
    assert (left == right) == (one == other)


@pytest.mark.parametrize("text", ["", "\n", "a", "a\n", "a\r\n\r\nb", "\n\n", "a\nb\r"])
def test_lines_end_in_newlines_with_or_without_a_return(text):
    expected_lines = text.replace("\r\n", "\n").removesuffix("\n").removesuffix("\r").split("\n") if text else []
    assert list(split_lines(text)) == expected_lines


def test_lines_of_a_text_of_many_chunks_are_its_lines():
    text = "ab\n" * 900_000 + "last"
    assert list(split_lines(text)) == text.split("\n")


def test_the_beginning_of_a_text_is_shown_and_blank_ones_are_told():
    assert preview_lines(" \n") == ["the text is blank"]
    assert preview_lines("a\nb\nc", 2) == ["the text begins:", "  a", "  b", "  ..."]
    assert matcher("contains")("x", b"").diff == "missing: 'x'\nthe text is empty"
