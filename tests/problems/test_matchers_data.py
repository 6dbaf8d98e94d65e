"""Data: json, number, table, hash, schema."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from decimal import Decimal
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kofn.errors import InputError, MissingExtra
from kofn.problems.matchers import matcher
from kofn.problems.matchers.bounds import StepBudget, StepsExceeded, unpaired
from kofn.problems.matchers.csv_tables import TableMatcher
from kofn.problems.matchers.json_data import MAX_DEPTH, JsonMatcher, _Comparison, format_path, parse_path, read_actual
from kofn.problems.matchers.plain_text import (
    Closeness,
    HashMatcher,
    NumberMatcher,
    parse_amount,
    parse_last_amount,
    parse_plain_number,
)

# json


@pytest.mark.parametrize(
    ("params", "expected", "actual", "correct"),
    [
        ({}, {"a": 1, "b": [True, None]}, b'{"b": [true, null], "a": 1.0}', True),
        ({}, '{"a": 1}', b'{"a": 1}', True),
        ({}, b'{"a": 1}\n', b'{"a": 1}', True),
        ({}, [1, 2], b"[2, 1]", False),
        ({}, 1, b"true", False),
        ({}, True, b"1", False),
        ({}, False, b"0", False),
        ({}, None, b"null", True),
        ({}, None, b"0", False),
        ({}, '"a"', b'"a"', True),
        ({}, ["1"], b"[1]", False),
        ({}, 0.1, b"0.10", True),
        ({}, 0.1, b"0.1000000000000000055511151231257827", False),
        ({}, 10**20, b"100000000000000000001", False),
        ({}, "1e400", b"1" + b"0" * 400, True),
        ({}, 1, b"1e999999999", False),
        ({}, 0, b"-0.0", True),
        ({}, {"a": 1}, b'\xef\xbb\xbf{"a": 1}', True),
        ({}, '["\\ud800"]', b'["\\ud800"]', True),
        ({}, 404, 404, True),
        ({}, {"a": 1}, b'{"a": 1, "b": 2}', False),
        ({"tolerance": 0.1}, [0.3], b"[0.4]", True),
        ({"tolerance": 0.1}, [0.3], b"[0.401]", False),
        ({"tolerance": 1}, [1], b"[true]", False),
        ({"relative": 0.01}, [100], b"[101]", True),
        ({"relative": 0.01}, [100], b"[101.01]", False),
        ({"relative": 1.0}, [1], b"[1e999999999]", False),
        ({"ignore": ["$.time"]}, {"a": 1, "time": 3}, b'{"a": 1, "time": 4}', True),
        ({"ignore": ["$.time"]}, {"a": 1, "time": 3}, b'{"a": 1}', True),
        ({"ignore": ["$.time"]}, {"a": 1}, b'{"a": 1, "time": 4}', True),
        ({"ignore": ["$.time"]}, {"a": {"time": 1}}, b'{"a": {"time": 2}}', False),
        ({"ignore": ["$.*.time"]}, {"a": {"time": 1}}, b'{"a": {"time": 2}}', True),
        ({"ignore": ["$[*].id"]}, [{"id": 1, "v": 1}, {"id": 2, "v": 1}], b'[{"id": 5, "v": 1}, {"v": 1}]', True),
        ({"ignore": ["$[1]"]}, [1, 2, 3], b"[1, 9, 3]", True),
        ({"ignore": ["$[1]"]}, [1, 2, 3], b"[9, 2, 3]", False),
        ({"ignore": ["$[1]"]}, [1, 2], b"[1]", False),
        ({"ignore": ['$["a b"]', "$['c.d']"]}, {"a b": 1, "c.d": 1}, b"{}", True),
        ({"ignore": ["$.a-b"]}, {"a-b": 1}, b"{}", True),
        ({"unordered": True}, {"x": [1, [2, 3]]}, b'{"x": [[3, 2], 1]}', True),
        ({"unordered": True}, [1, 1, 2], b"[1, 2, 2]", False),
        ({"unordered": True}, [1, True], b"[true, 1.0]", True),
        ({"unordered": True}, [1, 1], b"[true, 1]", False),
        ({"unordered": ["$.x"]}, {"x": [1, 2], "y": [1, 2]}, b'{"x": [2, 1], "y": [1, 2]}', True),
        ({"unordered": ["$.x"]}, {"x": [1, 2], "y": [1, 2]}, b'{"x": [2, 1], "y": [2, 1]}', False),
        ({"unordered": ["$[*].x"]}, [{"x": [1, 2]}], b'[{"x": [2, 1]}]', True),
        ({"unordered": ["$"]}, [[1, 2], [3]], b"[[3], [1, 2]]", True),
        ({"unordered": ["$"]}, [[1, 2], [3]], b"[[3], [2, 1]]", False),
        ({"unordered": True, "ignore": ["$[*].id"]}, [{"id": 1, "v": 1}, {"v": 2}], b'[{"v": 2}, {"v": 1}]', True),
        ({"unordered": True, "ignore": ["$[*]"]}, [1, 2], b"[3, 4]", True),
        ({"unordered": True, "tolerance": 1}, [1, 2], b"[2.9, 1.9]", True),
        ({"unordered": True, "tolerance": 1}, [1, 2], b"[0, 1]", True),
        ({"unordered": True, "tolerance": 1}, [1, 2], b"[3.1, 1]", False),
        ({"unordered": True, "tolerance": 0.5}, [1, 2], b"[1]", False),
        ({"unordered": True, "subset": True}, [{"a": 1}, {}], b'[{"b": 1}, {"a": 1, "c": 2}]', True),
        ({"unordered": True, "subset": True}, [{"a": 1}, {"a": 2}], b'[{"a": 1}, {"a": 1}]', False),
        ({"subset": True}, {"a": {"b": 1}}, b'{"a": {"b": 1, "c": 2}, "d": 3}', True),
        ({"subset": True}, {"a": {"b": 1}}, b'{"a": {"c": 2}}', False),
        ({"subset": True}, [1], b"[1, 2]", False),
    ],
)
def test_json(params, expected, actual, correct):
    assert JsonMatcher(**params)(expected, actual).correct is correct


def test_differences_of_data_are_told_by_path():
    expected = {
        "name": "x",
        "items": [{"price": 1}, {"price": 2}, {"price": 3}],
        "a b": 1,
        "tags": [1, 2, 3],
        "deep": [0, [1]],
    }
    found = {
        "items": [{"price": 1}, {"price": 2}, {"price": 4}],
        "a b": "1",
        "tags": [1, 2],
        "extra": {},
        "deep": [0, {"z": [1, [2, [3]]]}],
    }
    assert JsonMatcher()(expected, json.dumps(found).encode()).diff.split("\n") == [
        "$.name: missing",
        "$.items[2].price: expected 3, found 4",
        '$["a b"]: expected 1, found "1"',
        "$.tags: 3 items expected, 2 found",
        '$.deep[1]: expected [1], found {"z": [1, [...]]}',
        "$.extra: not expected",
    ]


def test_of_lists_of_different_lengths_the_first_item_that_differs_is_told():
    assert JsonMatcher()([1, 2, 3, 4], b"[1, 3, 4]").diff == "$: 4 items expected, 3 found\n$[1]: expected 2, found 3"


def test_lists_without_order_tell_what_is_missing_and_what_is_not_expected():
    diff = JsonMatcher(unordered=True)({"x": [{"id": 1}, 2, 2]}, b'{"x": [2, 3, {"id": 5}]}').diff
    assert diff == '$.x: missing {"id": 1}\n$.x: missing 2\n$.x: not expected 3\n$.x: not expected {"id": 5}'
    diff = JsonMatcher(unordered=True, tolerance=0.1)([1, 2, 3], b"[3.05, 5, 1]").diff
    assert diff == "$: missing 2\n$: not expected 5"
    assert JsonMatcher(unordered=True)([1, 2], b"[2, 1, 3]").diff == "$: 2 items expected, 3 found\n$: not expected 3"


def test_long_values_are_cut_so_that_their_difference_shows():
    diff = JsonMatcher()({"x": "a" * 1000 + "b"}, json.dumps({"x": "a" * 1000 + "c"}).encode()).diff
    assert diff == f'$.x: expected ...{"a" * 40}b", found ...{"a" * 40}c"'


@pytest.mark.parametrize(
    ("actual", "reason"),
    [
        (b"", "not JSON: empty\nthe text is empty"),
        (b" \n", "not JSON: blank\nthe text is blank"),
        (b"yes: no", "not JSON: line 1 column 1: Expecting value\nthe text begins:\n  yes: no"),
        (b'{"a":\n 1,}', "not JSON: line 2 column 4: "),
        (b"{} {}", "not JSON: line 1 column 4: Extra data"),
        (b"[NaN]", "not JSON: NaN is no JSON number"),
        (b"-Infinity", "not JSON: -Infinity is no JSON number"),
        (b'[{"a": 1, "b": 2, "a": 3}]', 'not JSON: key "a" is there twice'),
        (b'["\xff"]', "not JSON: byte 3 is not UTF-8"),
        (b'["\\\xff"]', "not JSON: byte 4 is not UTF-8"),
        (b"[" * 100_000, "JSON nested more than 200 levels deep"),
        (b'{"a":' * 100_000, "JSON nested more than 200 levels deep"),
        (b"[" + b"1," * 1_000_001 + b"1]", "JSON of more than 1,000,000 values"),
        (b"1e" + b"9" * 30, "a number beyond all bounds: 1e9999"),
    ],
)
def test_what_is_not_json_is_wrong_and_says_why(actual, reason):
    match = JsonMatcher()([1], actual)
    assert not match.correct
    assert match.diff.startswith(reason)


def test_brackets_and_commas_in_strings_are_no_structure():
    text = '[{,\\"' * 300_000
    assert JsonMatcher()([text], json.dumps([text]).encode()).correct


@pytest.mark.parametrize("params", [{}, {"unordered": True}, {"unordered": True, "tolerance": 0.1, "subset": True}])
def test_data_as_deep_as_is_allowed_is_compared(params):
    deep = "[" * MAX_DEPTH + "1" + "]" * MAX_DEPTH
    assert JsonMatcher(**params)(deep, deep.encode()).correct
    diff = JsonMatcher(**params)(deep, deep.replace("1", "2").encode()).diff
    assert diff.startswith("$[0][0]")
    assert diff.endswith("[0][0]: expected 1, found 2")


def test_deep_data_without_order_never_exhausts_the_stack():
    deep = "[0," * 190 + "1" + "]" * 190
    match = JsonMatcher(unordered=True, tolerance=0.1)(deep, deep.replace("1", "2").encode())
    assert not match.correct
    assert match.diff


@given(
    data=st.lists(st.integers(0, 12), min_size=1, max_size=5),
    found=st.lists(st.integers(0, 12), min_size=1, max_size=5),
)
@settings(max_examples=60, deadline=None)
def test_without_order_data_is_right_exactly_if_some_order_is(data, found):
    for tolerance in (0, 2):
        some = any(
            JsonMatcher(tolerance=tolerance)(list(one), json.dumps(found).encode()).correct
            for one in permutations(data)
        )
        assert JsonMatcher(tolerance=tolerance, unordered=True)(data, json.dumps(found).encode()).correct == some


def test_a_large_list_without_order_is_right_within_a_tolerance():
    numbers = [n / 10 for n in range(10_000)]
    found = json.dumps([number + 0.04 for number in numbers[::-1]]).encode()
    assert JsonMatcher(unordered=True, tolerance=0.05)(numbers, found).correct


def test_facing_one_partner_each_is_never_too_much():
    comparison = _Comparison(Closeness.of(0.05), subset=False, pairing=StepBudget(10))
    numbers = list(range(1000))
    assert (
        list(
            comparison.differences(
                numbers, [Decimal(n) for n in numbers[::-1]], (), JsonMatcher(unordered=True)._rules()
            )
        )
        == []
    )


def test_pairing_everything_up_stops_when_it_would_take_too_long():
    numbers = list(range(1500))
    nobody_fits = json.dumps([number + 0.5 for number in numbers]).encode()
    diff = JsonMatcher(unordered=True, tolerance=0.1)(numbers, nobody_fits).diff
    assert diff.startswith("$: missing 0\n$: missing 1\n")
    everybody_fits_but_one = json.dumps([*numbers[:-1], 10**9]).encode()
    diff = JsonMatcher(unordered=True, tolerance=5000)(numbers, everybody_fits_but_one).diff
    assert diff.startswith("too much to compare without order\n")


@given(edges=st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4))))
def test_as_many_as_possible_are_paired(edges):
    left, right = unpaired(range(5), range(5), lambda i, j: (i, j) in edges, StepBudget())
    best = max(sum((i, j) in edges for i, j in enumerate(order)) for order in permutations(range(5)))
    assert len(left) == len(right) == 5 - best


def test_a_budget_that_ends_before_anything_is_known_is_too_much():
    with pytest.raises(StepsExceeded):
        unpaired(range(10), range(10), lambda i, j: i + j == 9, StepBudget(5))


@pytest.mark.parametrize("path", [(), ("a",), ("a b", 0), ("é", "x-y", 12), ('"', "\\")])
def test_paths_read_back_as_they_are_shown(path):
    assert parse_path(format_path(path), "ignore") == path


@given(text=st.text("$.[]*\"'a0\\ ", max_size=12))
def test_any_text_is_a_path_or_the_authors_mistake(text):
    steps = None
    with contextlib.suppress(InputError):
        steps = parse_path(text, "ignore")
    assert steps is None or (text.startswith("$") and len(steps) <= len(text) // 2)


def test_numbers_are_read_without_loss():
    assert read_actual(b"[12, 0.10, 123456789012345678901]") == [12, Decimal("0.10"), Decimal("123456789012345678901")]


# number


@pytest.mark.parametrize(
    ("params", "expected", "actual", "correct"),
    [
        ({}, 3, b" 3\n", True),
        ({}, 3, b"3.0", True),
        ({}, 1234.5, b"1,234.50", True),
        ({}, 1234.5, b"12,34.50", False),
        ({}, -3, b"-3", True),
        ({}, 3, b"+3", True),
        ({}, 1000, b"1e3", True),
        ({}, "1e3", b"1000", True),
        ({}, 0.75, b"3/4", True),
        ({}, "1/3", b"2/6", True),
        ({}, "1/3", b"0.3333", False),
        ({}, 50, b"50%", True),
        ({}, 0.5, b"50%", True),
        ({}, "50%", b"0.5", True),
        ({}, "50%", b"5000%", False),
        ({}, 0.1, b".1", True),
        ({}, 0.1, b"0.1000000000000000055511151231257827", False),
        ({}, 1e300, b"1e300", True),
        ({}, "1e500", b"1e500", True),
        ({}, 3, b"three", False),
        ({}, 3, b"3 apples", False),
        ({}, 3, b"", False),
        ({}, 3, b"nan", False),
        ({}, 3, b"inf", False),
        ({}, 3, b"1/0", False),
        ({}, 3, b"\xef\xbb\xbf3", True),
        ({}, 3, "3\u0663".encode(), False),
        ({}, 3, 3, True),
        ({}, b"3\n", b"3", True),
        ({"tolerance": 0.1}, 3, b"3.1", True),
        ({"tolerance": 0.1}, 3, b"3.11", False),
        ({"relative": 0.1}, 100, b"110", True),
        ({"relative": 0.1}, 100, b"111", False),
        ({"relative": 0.1}, -100, b"-90", True),
        ({"tolerance": 10**9}, 3, b"1e999999999", False),
        ({"relative": 2}, "9e999999999999999999", b"-9e999999999999999999", False),
        ({"anywhere": True}, 42, b"of 50 I take 42.", True),
        ({"anywhere": True}, 50, b"of 50 I take 42.", False),
        ({"anywhere": True}, 1234, b"it is $1,234!", True),
        ({"anywhere": True}, 3, b"total=3", True),
        ({"anywhere": True}, 3, b"x2 is 3 in py4", True),
        ({"anywhere": True}, 3, b"none", False),
    ],
)
def test_number(params, expected, actual, correct):
    assert NumberMatcher(**params)(expected, actual).correct is correct


@pytest.mark.parametrize(
    ("params", "actual", "diff"),
    [
        ({}, b"4", "expected 3, found 4: off by 1"),
        ({"tolerance": 0.5, "relative": 0.01}, b"4", "expected 3 (within 0.5 or within 1% of it), found 4: off by 1"),
        ({}, b"x", "not a number\nthe text begins:\n  x"),
        ({"anywhere": True}, b"x", "no number in the text\nthe text begins:\n  x"),
        ({}, b"1e999999999", "expected 3, found 1E+999999999: off by 1.00000e+999999999"),
    ],
)
def test_how_far_off_a_number_is_gets_told(params, actual, diff):
    assert NumberMatcher(**params)(3, actual).diff == diff


def test_the_last_number_is_looked_for_in_the_last_million_characters():
    assert parse_last_amount("7 " + "x" * 2_000_000) is None
    assert parse_last_amount("1" * 2_000_000 + " 7").value == 7
    assert parse_last_amount("7" + " " * 900_000).value == 7


@given(top=st.integers(-999, 999), bottom=st.integers(1, 999), factor=st.integers(1, 999))
def test_equal_quotients_are_equal(top, bottom, factor):
    assert parse_amount(f"{top}/{bottom}") == parse_amount(f"{top * factor}/{bottom * factor}")


@given(expected=st.decimals(-1000, 1000, places=3), found=st.decimals(-1000, 1000, places=3), far=st.integers(0, 50))
def test_closeness_is_exact_at_its_bound(expected, found, far):
    assert Closeness.of(far / 10).holds(expected, found) == (abs(expected - found) * 10 <= far)


def test_a_tolerance_larger_than_any_float_is_one_all_the_same():
    assert NumberMatcher(tolerance=10**400)(3, b"1e399").correct
    assert not NumberMatcher(tolerance=10**400)(3, b"1e401").correct


def test_identifiers_with_leading_zeros_are_no_numbers():
    assert parse_plain_number("007") is None
    assert parse_plain_number("0.7") == Decimal("0.7")
    assert parse_plain_number("0") == 0


# table


TABLE = "id,name,price\n1,ink,4.50\n2,pen,3\n"


@pytest.mark.parametrize(
    ("params", "actual", "correct"),
    [
        ({}, b"id,name,price\r\n1,ink,4.5\r\n\r\n2,pen,3.0", True),
        ({}, b'"id", "name" ,price\n"1",ink, 4.50\n2,pen,3e0\n', True),
        ({}, b"id,name,price\n1,ink,4.50\n", False),
        ({}, b"id,name,price\n2,pen,3\n1,ink,4.50\n", False),
        ({"ordered": False}, b"id,name,price\n2,pen,3\n1,ink,4.50\n", True),
        ({"ordered": False}, b"id,name,price\n2,pen,3\n2,pen,3\n", False),
        ({}, b"name,id,price\nink,1,4.50\npen,2,3\n", False),
        ({"columns_ordered": False}, b"name,id,price\nink,1,4.50\npen,2,3\n", True),
        ({"columns_ordered": False}, b"name,id,price\n1,ink,4.50\npen,2,3\n", False),
        ({"columns_ordered": False, "ordered": False}, b"name,id,price\npen,2,3\nink,1,4.50\n", True),
        ({"header": False}, b"id,name,price\n1,ink,4.50\n2,pen,3\n", True),
        ({"tolerance": 0.1}, b"id,name,price\n1,ink,4.6\n2,pen,2.95\n", True),
        ({"tolerance": 0.1}, b"id,name,price\n1,ink,4.61\n2,pen,2.95\n", False),
        ({"tolerance": 0.1, "ordered": False}, b"id,name,price\n2,pen,2.95\n1,ink,4.6\n", True),
        ({"tolerance": 0.1, "ordered": False}, b"id,name,price\n2,pen,2.95\n1,ink,4.7\n", False),
        ({}, b"\xef\xbb\xbfid,name,price\n1,ink,4.50\n2,pen,3\n", True),
        ({}, b"", False),
        ({"delimiter": "\t"}, b"id\tname\tprice\n1\tink\t4.5\n2\tpen\t3\n", False),
    ],
)
def test_table(params, actual, correct):
    assert TableMatcher(**params)(TABLE, actual).correct is correct


def test_a_table_of_another_delimiter_is_read_with_it():
    assert TableMatcher(delimiter="\t")("a\tb\n1\t2,5\n", b"a\tb\n1\t2,5\n").correct


@pytest.mark.parametrize(
    "expected", [[["id", "name"], [1, None], [2, "x"]], [{"id": 1}, {"id": 2, "name": "x"}], b"id,name\n1,\n2,x\n"]
)
def test_a_table_is_expected_as_rows_as_records_or_as_a_file(expected):
    assert TableMatcher()(expected, b"id,name\n1,\n2,x\n").correct
    assert not TableMatcher()(expected, b"id,name\n1,\n2,y\n").correct


@pytest.mark.parametrize(
    ("params", "actual", "diff"),
    [
        (
            {},
            b"id,name,price\n1,ink,4.5x\n2,pen,\n",
            "row 1, price: expected 4.50, found 4.5x\nrow 2, price: expected 3, found nothing",
        ),
        ({}, b"id,name,price\n1,ink\n2,pen,3\n", "row 1: 3 cells expected, 2 found: 1, ink"),
        ({}, b"id,name,price\n,,,,,x\n2,pen,3\n", "row 1: 3 cells expected, more found: , , , "),
        ({}, b"id,name,price\n1,ink,4.5\n", "2 rows expected, 1 found"),
        ({}, b"id,cost,name\n", "column price: missing\ncolumn cost: not expected"),
        ({}, b"id,name,price,id\n", "column id: there more than once"),
        ({}, b"name,id,price\n", "columns in another order: expected id, name, price, found name, id, price"),
        ({"header": False}, b"id,name,price\n1,ink,4.5\n2,pan,3\n", "row 3, column 2: expected pen, found pan"),
        (
            {"ordered": False},
            b"id,name,price\n2,pen,3\n1,ink,5\n",
            "row missing: 1,ink,4.50\nrow not expected: 1,ink,5",
        ),
        ({}, b"", "not a table: no row has anything in it\nthe text is empty"),
        ({}, b"x" * 200_000, "not a table: field larger than field limit (131072)\nthe text begins:\n  x"),
        ({}, b"id,name,price\n" + b"1,2,3\n" * 50_000, "2 rows expected, 10,002 or more found\nrow 1, name: "),
    ],
)
def test_differences_of_tables_are_told_by_row_and_column(params, actual, diff):
    assert TableMatcher(**params)(TABLE, actual).diff.startswith(diff)


def test_a_cell_that_looks_like_a_number_but_is_an_identifier_is_compared_as_text():
    assert not TableMatcher()("zip\n01234\n", b"zip\n1234\n").correct
    assert TableMatcher()("zip\n01234\n", b"zip\n01234\n").correct


# hash


@pytest.mark.parametrize("algorithm", ["sha256", "md5", "sha1", "sha512"])
def test_hash(algorithm):
    digest = hashlib.new(algorithm, b"abc").hexdigest()
    made = HashMatcher(algorithm=algorithm)
    assert made(digest, b"abc").correct
    assert made(f" {digest.upper()}\n", "abc").correct
    assert made(b"abc", b"abc").correct
    assert not made(digest, b"abd").correct


def test_a_wrong_hash_shows_both_digests_and_the_size():
    one, other = hashlib.sha256(b"").hexdigest(), hashlib.sha256(b"a" * 5000).hexdigest()
    assert HashMatcher()(one, b"a" * 5000).diff == f"expected sha256 {one}\nfound    sha256 {other} (5,000 bytes)"


# schema


def test_a_missing_jsonschema_is_one_line_that_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(MissingExtra, match=r"^matcher schema needs jsonschema: pip install 'kofn\[schema\]'$"):
        matcher("schema")


PERSON = {"type": "object", "required": ["name"], "properties": {"age": {"type": "integer", "minimum": 0}}}


class TestWithJsonschema:
    @pytest.fixture(autouse=True)
    def needs_jsonschema(self):
        pytest.importorskip("jsonschema")

    @pytest.mark.parametrize(
        ("schema", "actual", "diff"),
        [
            (PERSON, b'{"name": "Ada", "age": 36}', ""),
            (json.dumps(PERSON), b'{"name": "Ada"}', ""),
            (json.dumps(PERSON).encode(), b'{"name": "Ada"}', ""),
            (PERSON, b'{"age": -1}', "$: 'name' is a required property\n$.age: -1 is less than the minimum of 0"),
            (PERSON, b"Ada", "not JSON: line 1 column 1: Expecting value\nthe text begins:\n  Ada"),
            (PERSON, b'{"name": 1, "name": 2}', 'not JSON: key "name" is there twice'),
            (True, b"1", ""),
            (False, b"1", "$: False schema does not allow 1"),
            ({"items": {"pattern": "^a+$"}}, b'["aa", "b"]', "$[1]: 'b' does not match '^a+$'"),
            ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}, b'"x"', "$: 'x' is not of type 'integer'"),
            ({"multipleOf": 0.1}, b"1" * 3000, "cannot be checked: OverflowError"),
            ({}, b"1e999", "a number beyond what a schema can check: 1e999"),
            ({}, b"9" * 5000, "a number beyond what a schema can check: 999"),
            ({"$ref": "#"}, b"1", "cannot be checked: RecursionError"),
            ({"uniqueItems": True}, b"[" + b"{}, " * 500 + b"1]", "$: [{}, {}, {}"),
        ],
    )
    def test_schema(self, schema, actual, diff):
        match = matcher("schema", {"limit": 30})(schema, actual)
        assert match.correct == (diff == "")
        assert match.diff.startswith(diff)

    def test_the_end_of_a_long_message_is_kept(self):
        diff = matcher("schema")({"type": "object"}, json.dumps(["x" * 50] * 50).encode()).diff
        assert diff.endswith("is not of type 'object'")

    def test_at_most_ten_violations_are_listed(self):
        diff = matcher("schema")({"items": {"type": "integer"}}, json.dumps(["x"] * 50).encode()).diff
        assert diff.count("is not of type 'integer'") == 10
        assert diff.endswith("\n... and more")

    def test_nothing_is_fetched_for_a_reference_to_elsewhere(self):
        message = r"^matcher schema: cannot resolve \$ref 'https://example.invalid/x': put it in \$defs$"
        with pytest.raises(InputError, match=message):
            matcher("schema")({"$ref": "https://example.invalid/x"}, b"{}")

    @pytest.mark.programs(quick=1)
    @pytest.mark.parametrize(
        ("schema", "actual"),
        [
            ({"pattern": "^(a+)+$"}, json.dumps("a" * 50 + "b").encode()),
            ({"uniqueItems": True}, json.dumps([{"n": n} for n in range(20_000)]).encode()),
            (
                {"anyOf": [{"type": "array", "items": {"$ref": "#"}}, {"type": "array", "items": {"$ref": "#"}}]},
                b"[" * 60 + b"1" + b"]" * 60,
            ),
        ],
        ids=["a pattern", "unique items", "alternatives that refer to themselves"],
    )
    def test_a_check_without_end_is_ended(self, schema, actual):
        assert matcher("schema", {"limit": 1})(schema, actual).diff.startswith("checking took longer than 1 s\n")
