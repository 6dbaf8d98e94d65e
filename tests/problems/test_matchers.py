"""Laws that every matcher obeys, how matchers are named and made, and functions of the author's own."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import pickle
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kofn.errors import InputError, UnknownName
from kofn.problems.matchers import (
    MATCHERS,
    MAX_CHARACTERS,
    MAX_LINES,
    CustomMatcher,
    Match,
    bounded_diff,
    decode_actual,
    default_matcher,
    expected_text,
    matcher,
    normalize_result,
    text_of,
)
from kofn.problems.matchers.plain_text import ExactMatcher

TEXT = st.text(st.characters(codec="utf-8"), max_size=40).filter(lambda text: not text.startswith("\ufeff"))
LINES = st.lists(TEXT, max_size=5)
NUMBERS = st.integers() | st.decimals(allow_nan=False, allow_infinity=False).map(str)
DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)
CELL = st.integers().map(str) | TEXT


@st.composite
def tables(draw: st.DrawFn) -> list[list[str]]:
    names = draw(st.lists(TEXT.map(str.strip), unique=True, min_size=1, max_size=4).filter(any))
    rows = draw(st.lists(st.lists(CELL, min_size=len(names), max_size=len(names)), max_size=4))
    return [names, *rows]


def as_csv(rows: list[list[str]]) -> bytes:
    written = io.StringIO()
    csv.writer(written).writerows(rows)
    return written.getvalue().encode("utf-8")


def reversed_lists(value: object) -> object:
    if isinstance(value, list):
        return [reversed_lists(item) for item in value[::-1]]
    return {key: reversed_lists(item) for key, item in value.items()} if isinstance(value, dict) else value


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()


# label: the matcher, its parameters, what may be expected, and a text that is right
RIGHT = {
    "exact": ("exact", {}, TEXT, str.encode),
    "stripped": ("stripped", {}, TEXT, lambda text: f"\n{text}  \r\n\n".encode()),
    "collapsed": ("stripped", {"collapse": True}, TEXT, lambda text: f" {text.replace(' ', '  ')}\n".encode()),
    "caseless": ("stripped", {"ignore_case": True}, st.text("aBcß\n ", max_size=9), lambda text: text.upper().encode()),
    "lines": ("lines", {}, LINES, lambda lines: "\n\n".join(lines).encode()),
    "lines as they are": (
        "lines",
        {"strip": False, "ignore_blank": False},
        LINES,
        lambda lines: "".join(f"{line}\n" for line in lines).encode(),
    ),
    "lines in any order": ("lines", {"ordered": False}, LINES, lambda lines: "\n".join(lines[::-1]).encode()),
    "contains": ("contains", {}, TEXT.filter(bool), lambda text: f"before{text}after".encode()),
    "contains all": (
        "contains",
        {"ignore_case": True},
        st.lists(TEXT.filter(bool), min_size=1),
        lambda parts: "|".join(["", *parts]).encode(),
    ),
    "regex": (
        "regex",
        {"limit": 30.0},
        TEXT.map(re.escape),
        lambda pattern: re.sub(r"\\(.)", r"\1", pattern, flags=re.DOTALL).encode(),
    ),
    "number": ("number", {}, NUMBERS, lambda number: f" {number}\n".encode()),
    "number anywhere": ("number", {"anywhere": True}, NUMBERS, lambda number: f"of 3 it is {number}.".encode()),
    "json": ("json", {}, DATA.filter(lambda data: not isinstance(data, str)), as_json),
    "json as text": ("json", {}, DATA.map(json.dumps), str.encode),
    "json in any order": ("json", {"unordered": True}, st.lists(DATA), lambda data: as_json(reversed_lists(data))),
    "json in any order, nearly": (
        "json",
        {"unordered": True, "tolerance": 0.5},
        st.lists(DATA),
        lambda data: as_json(reversed_lists(data)),
    ),
    "json in part": (
        "json",
        {"subset": True},
        st.dictionaries(st.text(max_size=3), DATA),
        lambda data: as_json({"further": 1} | data),
    ),
    "table": ("table", {}, tables(), as_csv),
    "table in any order": (
        "csv",
        {"ordered": False, "columns_ordered": False},
        tables(),
        lambda rows: as_csv([row[::-1] for row in [rows[0], *rows[:0:-1]]]),
    ),
    "table in any order, nearly": (
        "csv",
        {"ordered": False, "tolerance": 0.1},
        tables(),
        lambda rows: as_csv([rows[0], *rows[:0:-1]]),
    ),
    "hash": ("hash", {}, st.binary(), lambda content: content),
    "schema": ("schema", {}, st.builds(lambda data: {"const": data}, DATA), lambda schema: as_json(schema["const"])),
}

# label: the matcher, its parameters, something expected
ANY = {
    "exact": ("exact", {}, "a\nb\n"),
    "exact bytes": ("exact", {}, b"\x00\xff"),
    "exact number": ("exact", {}, 3),
    "stripped": ("stripped", {}, "a\n\n b"),
    "stripped, loosely": ("stripped", {"ignore_case": True, "collapse": True}, "a b"),
    "lines": ("lines", {}, "a\nb"),
    "lines as they are": ("lines", {"strip": False, "ignore_blank": False}, ["a", "b"]),
    "lines in any order": ("lines", {"ordered": False, "ignore_case": True}, ["a", "b"]),
    "contains": ("contains", {"absent": ["b"]}, ["a"]),
    "regex": ("regex", {"limit": 30.0}, "a|[0-9]"),
    "regex in part": ("regex", {"full": False, "limit": 30.0}, "[ab]+"),
    "number": ("number", {"tolerance": 0.5, "relative": 0.1}, 3),
    "number anywhere": ("number", {"anywhere": True}, "1/3"),
    "json": ("json", {"tolerance": 0.1}, {"a": [1, 2.5, None]}),
    "json loosely": ("json", {"unordered": True, "subset": True, "ignore": ["$.a[*].b"]}, [{"a": 1}, 2, 3]),
    "table": ("table", {}, "a,b\n1,2\n"),
    "table loosely": ("csv", {"header": False, "ordered": False, "tolerance": 1.0}, "1,2\n3,4\n"),
    "hash": ("hash", {"algorithm": "md5"}, "0" * 32),
    "schema": ("schema", {}, {"type": "array", "items": {"type": "integer", "multipleOf": 3}}),
}

PIECES = [
    "a",
    "b",
    "\n",
    "\r",
    "\t",
    " ",
    ",",
    '"',
    "{",
    "}",
    "[",
    "]",
    ":",
    "1",
    "-",
    ".",
    "e9",
    "/",
    "%",
    "null",
    '"a"',
    "[1,2.5,null]",
    "NaN",
    "\ufeff",
    "\u202e",
    "é",
    "\\",
    "\x00",
    "\x1b[2J",
]
ACTUAL = st.one_of(
    st.binary(max_size=60),
    st.lists(st.sampled_from(PIECES), max_size=20).map(lambda pieces: "".join(pieces).encode()),
    DATA.map(as_json),
    st.integers(-(2**70), 2**70),
    st.text(max_size=20),  # a header, lone surrogates and all
)


def each(table: dict[str, tuple]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", table.values(), ids=table)


@each(RIGHT)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_what_is_expected_is_right_however_it_is_written(case, data):
    name, params, expected, written = case
    expected_value = data.draw(expected)
    made = matcher(name, params)
    made.check_expected(expected_value)
    assert made(expected_value, written(expected_value)) == Match(correct=True)


@pytest.mark.long(quick=6)
@each(ANY)
@given(actual=ACTUAL)
@settings(max_examples=60, deadline=None)
def test_any_actual_value_gets_an_answer_with_a_diff_that_can_be_shown_exactly_where_it_is_wrong(case, actual):
    name, params, expected = case
    match = matcher(name, params)(expected, actual)
    assert (match.diff == "") == match.correct
    assert all(line.isprintable() for line in match.diff.split("\n"))
    assert match == matcher(name, params)(expected, actual)


@each(ANY)
@pytest.mark.parametrize(
    "actual", [b"x y\n" * 5000, b"x" * 50_000, b"\x1b" * 5000, b'{"z": ' + b"[3, 4], " * 5000 + b"}"]
)
def test_a_diff_is_short_however_long_the_text(case, actual):
    name, params, expected = case
    diff = matcher(name, params)(expected, actual).diff
    assert 0 < len(diff) <= MAX_CHARACTERS
    assert diff.count("\n") < MAX_LINES


@each(ANY)
def test_matchers_are_values(case):
    name, params, _ = case
    made = matcher(name, params)
    assert pickle.loads(pickle.dumps(made)) == made  # noqa: S301 - our own bytes
    assert hash(matcher(name, params)) == hash(made)


@each(ANY)
def test_the_same_text_of_bytes_and_of_a_header_compare_alike(case):
    name, params, expected = case
    for text in ("a", "3", "[3]", "a,b", "nothing"):
        assert matcher(name, params)(expected, text) == matcher(name, params)(expected, text.encode())


def test_every_family_has_laws():
    tried = {case[0] for case in RIGHT.values()} | {"csv", "table"}
    assert tried == set(MATCHERS) == {case[0] for case in ANY.values()} | {"csv", "table"}


# names and parameters


def test_importing_and_using_matchers_loads_only_the_standard_library_and_the_errors():
    code = """
import sys
before = set(sys.modules)
import kofn.problems.matchers as matchers
assert matchers.__name__ + ".plain_text" not in sys.modules, "a family is loaded when it is asked for"
for name in matchers.MATCHERS:
    __import__(matchers.MATCHERS[name].partition(":")[0])
matchers.matcher("json", {})({}, b"{}")
matchers.matcher("operator:eq", {})(1, 1)
new = set(sys.modules) - before
print(*sorted(m for m in new if m.split(".")[0] not in sys.stdlib_module_names))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    ours = re.compile(
        r"kofn|kofn\.(_version|errors|core(\.escape|\.format|\.lazy)?|problems|problems\.matchers(\.\w+)?)"
    )
    assert [name for name in done.stdout.split() if not ours.fullmatch(name)] == []


def test_an_unknown_name_offers_the_nearest_or_all():
    with pytest.raises(UnknownName, match=r"unknown matcher 'contain': did you mean contains"):
        matcher("contain")
    with pytest.raises(
        UnknownName, match=r"unknown matcher 'zzz': known: exact, .*; a function of your own is my_module"
    ):
        matcher("zzz")


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("exact", {"strip": True}, "matcher exact has no parameter 'strip': it takes none"),
        ("json", {"tol": 1}, "matcher json has no parameter 'tol': it takes tolerance, relative, ignore, unor"),
        ("stripped", {"collapse": "yes"}, "matcher stripped: collapse must be true or false, not 'yes'"),
        ("stripped", {"collapse": 1}, "matcher stripped: collapse must be true or false, not 1"),
        ("json", {"tolerance": -1}, "matcher json: tolerance must be a number of 0 or more, not -1"),
        ("json", {"tolerance": float("nan")}, "matcher json: tolerance must be a number of 0 or more, not nan"),
        ("json", {"tolerance": True}, "matcher json: tolerance must be a number of 0 or more, not True"),
        ("number", {"relative": "1%"}, "matcher number: relative must be a number of 0 or more, not '1%'"),
        ("json", {"ignore": "$.a"}, "matcher json: ignore must be a list of texts, not '$.a'"),
        ("json", {"ignore": [1]}, "matcher json: ignore must be a list of texts, not [1]"),
        ("json", {"unordered": "yes"}, "matcher json: unordered must be true, false or a list of texts, not 'yes'"),
        ("json", {"ignore": ["a"]}, "matcher json: ignore: 'a' is no path such as $.time, $.items[*].id or $["),
        ("json", {"unordered": ["$.a["]}, "matcher json: unordered: '$.a[' is no path such as"),
        ("json", {"ignore": ["$..a"]}, "matcher json: ignore: '$..a' is no path such as"),
        ("contains", {"absent": [""]}, "matcher contains: an empty text is in every text: absent must name others"),
        ("regex", {"limit": 0}, "matcher regex: limit must be above 0 and at most 600 seconds, not 0"),
        ("schema", {"limit": 0}, "matcher schema: limit must be above 0 and at most 600 seconds, not 0"),
        ("regex", {"limit": 1e30}, "matcher regex: limit must be above 0 and at most 600 seconds, not 1e+30"),
        ("table", {"delimiter": ""}, "matcher table: delimiter must be one character, not ''"),
        ("table", {"delimiter": "\n"}, "matcher table: delimiter must be one character, not '\\n'"),
        ("table", {"delimiter": 1}, "matcher table: delimiter must be text, not 1"),
        ("hash", {"algorithm": "crc32"}, "matcher hash: algorithm must be one of sha256, md5, sha1, sha512, not"),
    ],
)
def test_a_bad_parameter_fails_in_one_line_when_the_matcher_is_made(name, params, message):
    with pytest.raises(InputError) as caught:
        matcher(name, params)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "expected", "message"),
    [
        ("exact", None, 'matcher exact: expected must be text, not nothing (null); write "" for empty text'),
        ("exact", True, "matcher exact: expected must be text, not true or false; write it in quotes"),
        ("stripped", {"a": 1}, "matcher stripped: expected must be text, not a mapping; write it in quotes"),
        ("lines", ["a", None], 'matcher lines: expected must be text, not nothing (null); write "" for empty text'),
        ("contains", "", "matcher contains: an empty text is in every text: expected must name others"),
        ("contains", [], "matcher contains: nothing is looked for: expected is an empty list, and so is absent"),
        ("regex", "(", "matcher regex: '(' is no regular expression: missing ), unterminated subpattern at position 0"),
        ("regex", "(" * 5000 + ")" * 5000, "matcher regex: "),
        ("regex", "a{99999999999999}", "matcher regex: 'a{99999999999999}' is no regular expression: the repetition"),
        ("regex", 3, "matcher regex: expected must be a regular expression, not the number 3"),
        ("number", "three", "matcher number: expected must be a number, not the text 'three'"),
        ("number", b"\xff", "matcher number: expected must be a number, not the text "),
        ("number", True, "matcher number: expected must be a number, not true or false"),
        ("number", float("inf"), "matcher number: expected must be a finite number, not the number inf"),
        ("number", "1/0", "matcher number: expected must be a number, not the text '1/0'"),
        ("json", "yes", "matcher json: expected is not JSON: line 1 column 1: Expecting value; a text that is itself"),
        ("json", '{"a": 1, "a": 2}', 'matcher json: expected is not JSON: key "a" is there twice'),
        ("json", {"a": {2: 1}}, "matcher json: keys are texts: write 2 at $.a in quotes"),
        ("json", {"a": [float("nan")]}, "matcher json: expected has the number nan at $.a[0], which JSON cannot hold"),
        ("json", {"a": {1, 2}}, "matcher json: expected has a value of type set at $.a, which JSON cannot hold"),
        ("json", b"\xff", "matcher json: expected is not JSON: byte 1 is not UTF-8"),
        ("json", "[" * 300 + "]" * 300, "matcher json: expected is JSON nested more than 200 levels deep"),
        ("table", "", "matcher table: expected has no row"),
        ("table", "a,a\n1,2", "matcher table: expected has two columns 'a'; without names: header: false"),
        ("table", [1], "matcher table: expected must be text, a list of lists or a list of mappings, not the number 1"),
        ("table", "x" * 200_000, "matcher table: expected is no table: field larger than field limit"),
        ("hash", "abc", "matcher hash: expected must be a sha256 digest of 64 hex digits, not the text 'abc'"),
        ("hash", "x" * 64, "matcher hash: expected must be a sha256 digest of 64 hex digits, not the text 'xxx"),
        ("hash", 5, "matcher hash: expected must be a sha256 digest of 64 hex digits, not the number 5"),
        ("schema", {"type": "nope"}, "matcher schema: expected is no JSON Schema: $.type: 'nope' is not valid"),
        ("schema", {"pattern": "("}, "matcher schema: expected is no JSON Schema: $.pattern: '(' is not a 'regex'"),
        ("schema", {"patternProperties": {"(": {}}}, "matcher schema: expected is no JSON Schema: $.patternProperties"),
        ("schema", [1], "matcher schema: expected must be a JSON Schema, not a list"),
        ("schema", "[1]", "matcher schema: expected must be a JSON Schema, not a list"),
        ("schema", "{", "matcher schema: expected is not JSON: line 1 column 2"),
        ("schema", {"const": {1, 2}}, "matcher schema: expected is no JSON data: Object of type set"),
    ],
)
def test_what_can_never_be_right_is_the_authors_mistake_in_one_line(name, expected, message):
    made = matcher(name)
    for called in (lambda: made.check_expected(expected), lambda: made(expected, b"anything")):
        with pytest.raises(InputError) as caught:
            called()
        assert str(caught.value).startswith(message)
        assert "\n" not in str(caught.value)


def test_data_that_holds_itself_is_refused_and_not_followed():
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(InputError, match="nested more than 200 levels deep"):
        matcher("json").check_expected(circle)


@pytest.mark.parametrize(
    ("attribute", "expected", "name"),
    [
        ("stdout", "text", "stripped"),
        ("stdout", b"text", "stripped"),
        ("stdout", "", "stripped"),
        ("stdout", {"a": 1}, "json"),
        ("stdout", [1], "json"),
        ("body", True, "json"),
        ("stdout", 3, "number"),
        ("files/out.txt", 3.5, "number"),
        ("status_code", 0, "exact"),
        ("status_code", 200, "exact"),
        ("headers/content-type", "text/html", "exact"),
        ("headers/content-length", 12, "number"),
        ("headers/x", b"from a file", "stripped"),
        ("stdout", None, "stripped"),
    ],
)
def test_the_default_matcher_suits_what_is_expected(attribute, expected, name):
    assert default_matcher(attribute, expected) == name


# texts of actual values


def test_bytes_that_are_no_text_show_as_escapes_and_equal_no_text():
    assert text_of(b"a\xff\xfe\xc3\xa9") == "a\\xff\\xfeé"
    assert text_of(404) == "404"
    assert text_of("h\udcffx") == "h\\xffx"
    for expected in ("\\xff", "\udcff", "\ufffd", "ÿ"):
        assert not ExactMatcher()(expected, b"\xff").correct
    assert ExactMatcher()(b"\xff", b"\xff").correct


@given(content=st.binary())
def test_decoding_loses_nothing(content):
    assert decode_actual(content).encode("utf-8", "surrogateescape") == content


def test_a_lone_surrogate_of_the_authors_is_text_like_any_other():
    assert expected_text(ExactMatcher(), "\ud800") == "\\ud800"
    assert decode_actual("\ud800\udcff") == "\\ud800\\udcff"


# what is left out of a diff is told


def test_the_last_line_says_how_many_lines_are_left_out():
    assert bounded_diff(map(str, range(60))).endswith("\n58\n... 1 more line")
    assert bounded_diff(map(str, range(500))).endswith("\n58\n... 441 more lines")
    assert bounded_diff(map(str, range(5000))).endswith("\n58\n... more than 1,000 more lines")
    assert bounded_diff(["x" * 390] * 20, "and so on").endswith("x\n... 11 more lines; and so on")
    assert bounded_diff(["x" * 1000]) == "x" * 400 + "..."


# functions of the author's own


@pytest.fixture
def author(tmp_path, monkeypatch):
    """Write a module beside the problem; its name is never used twice, since imports are remembered."""
    monkeypatch.syspath_prepend(tmp_path)
    made = []

    def write(code: str) -> str:
        name = f"checks_{hashlib.sha256(str((tmp_path, code)).encode()).hexdigest()[:16]}"
        (tmp_path / f"{name}.py").write_text(code)
        made.append(name)
        return name

    yield write
    for name in made:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("form", ["{}:check", "{}.check", "{}:Checks.check"])
def test_a_function_of_the_authors_is_called_with_expected_actual_and_parameters(author, form):
    code = "def check(expected, actual, *, factor=1):\n    return float(actual) == expected * factor\n"
    module = author(code + "class Checks:\n    check = staticmethod(check)\n")
    assert matcher(form.format(module), {"factor": 2})(3, b"6").correct
    wrong = matcher(form.format(module))(3, b"6")
    assert wrong == Match(correct=False, diff=f"wrong, says {form.format(module)}")


@pytest.mark.parametrize(
    ("returned", "correct", "diff"),
    [
        ("True", True, ""),
        ("(True, 'a remark')", True, ""),
        ("(False, 'too short')", False, "too short"),
        ("{'correct': False, 'diff': 'a\\n\\tb\\n'}", False, "a\n        b"),
        ("{'is_correct': True}", True, ""),
        ("{'is_correct': False, 'diff': None}", False, "wrong, says "),
        ("Match(False, 'm')", False, "m"),
        ("Match(True)", True, ""),
        ("(False, '\\x1b[2J')", False, "\\x1b[2J"),
    ],
)
def test_whatever_the_function_may_return_becomes_a_match(author, returned, correct, diff):
    module = author(f"from kofn.problems.matchers import Match\ndef check(expected, actual):\n    return {returned}\n")
    match = matcher(f"{module}:check")(1, b"1")
    assert match.correct is correct
    assert match.diff == diff or (diff.endswith("says ") and match.diff == f"{diff}{module}:check")


@pytest.mark.parametrize(
    "returned", [None, 1, "yes", (True,), (1, "x"), (False, 3), {}, {"correct": "yes"}, [True, "x"]]
)
def test_anything_else_is_an_error_that_names_the_function(returned):
    with pytest.raises(
        InputError, match=r"^matcher my:check returned .*: it must return a bool, \(bool, text\), a Match"
    ):
        normalize_result(returned, "my:check")


def test_a_long_diff_of_the_authors_is_cut():
    diff = normalize_result((False, "line\n" * 1_000_000), "my:check").diff
    assert diff.count("\n") < MAX_LINES
    assert diff.endswith("more lines")


def test_what_the_function_raises_goes_to_the_caller(author):
    module = author("def check(expected, actual):\n    raise LookupError('no such table')\n")
    with pytest.raises(LookupError, match="no such table"):
        matcher(f"{module}:check")(1, b"1")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:check", "matcher no_such_module:check: cannot import no_such_module (ModuleNotFoundError: "),
        ("os.path:no_such", "matcher os.path:no_such: os.path has no function 'no_such'"),
        ("sys:path", "matcher sys:path: sys has no function 'path'"),
        (":check", "matcher :check: no module has no function 'check'"),
        ("json.loads", "matcher json.loads is called with (expected, actual), but takes (s, *, "),
    ],
)
def test_a_function_that_is_not_there_is_the_authors_mistake_when_it_is_used(name, message):
    made = matcher(name)
    made.check_expected(object())
    for called in (made.load, lambda: made(1, b"1")):
        with pytest.raises(InputError) as caught:
            called()
        assert str(caught.value).startswith(message)


def test_a_module_that_does_not_even_import_is_told_in_one_line(author):
    module = author("def check(:\n")
    with pytest.raises(InputError, match=rf"^matcher {module}:check: cannot import {module} \(SyntaxError: ") as caught:
        CustomMatcher(function=f"{module}:check").load()
    assert "\n" not in str(caught.value)


def test_a_parameter_the_function_does_not_take_is_told_with_its_signature(author):
    module = author("def check(expected, actual):\n    return True\n")
    with pytest.raises(
        InputError, match=r"is called with \(expected, actual, factor=\), but takes \(expected, actual\)"
    ):
        matcher(f"{module}:check", {"factor": 2})(1, b"1")
