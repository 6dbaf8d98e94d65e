"""JSON data and schemas."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kofn.errors import InputError, MissingExtra
from kofn.metrics import JsonEqual, LiteralEqual, Schema

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(data=JSON)
@settings(max_examples=30, deadline=None)
def test_data_equals_itself_however_it_is_written(data):
    assert JsonEqual()(json.dumps(data), json.dumps(data, indent=2, sort_keys=True)) == 1.0


@given(data=JSON)
@settings(max_examples=30, deadline=None)
def test_wrapped_data_differs_from_the_data(data):
    assert JsonEqual()(json.dumps([data]), json.dumps(data)) == 0.0


@pytest.mark.parametrize(
    ("prediction", "reference", "score"),
    [
        ('{"a": 1, "b": 2}', '{"b": 2, "a": 1.0}', 1),
        ("[1, 2]", "[2, 1]", 0),
        ("1", "true", 0),
        ("0", "null", 0),
        ('{"a": 1}', '{"a": 1, "b": null}', 0),
        ('```json\n{"a": [1]}\n```', {"a": [1]}, 1),
        ("```\n[1]\n```", "[1]", 1),
        ('Here it is: {"a": 1}', {"a": 1}, 0),
        ("NaN", "1", 0),
        ("[" * 100_000, "[]", 0),
        ("1e999999", "1", 0),
        ("9007199254740993", "9007199254740992", 0),
        ('"x"', ['"y"', '"x"'], 1),
    ],
)
def test_documented_json_comparisons(prediction, reference, score):
    assert JsonEqual()(prediction, reference) == score


def test_tolerance_applies_to_numbers_at_any_depth_and_to_nothing_else():
    close = JsonEqual(tolerance=0.1)
    assert close('{"a": [1.1, {"b": 2}]}', '{"a": [1, {"b": 2.1}]}') == 1.0
    assert close("1.1001", "1") == 0.0
    assert close("1", "true") == 0.0
    assert close("1e999999", "-1e999999") == 0.0


def test_a_reference_that_is_no_json_is_an_error():
    with pytest.raises(InputError, match="json_equal: the reference is not JSON: ok then"):
        JsonEqual()("{}", "ok then")


def test_a_missing_jsonschema_is_one_line_that_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(MissingExtra, match=r"metric schema needs jsonschema: pip install 'kofn\[schema\]'"):
        Schema()


PERSON = {"type": "object", "required": ["name"], "properties": {"age": {"type": "integer", "minimum": 0}}}


class TestWithJsonschema:
    @pytest.fixture(autouse=True)
    def needs_jsonschema(self):
        pytest.importorskip("jsonschema")

    def test_valid_outputs_score_1_and_others_0(self):
        metric = Schema(schema=PERSON)
        assert metric('{"name": "Ada", "age": 36}') == 1.0
        assert metric('```json\n{"name": "Ada"}\n```') == 1.0
        assert metric('{"name": "Ada", "age": -1}') == 0.0
        assert metric("Ada") == 0.0
        assert metric(None) == 0.0
        assert not metric.needs_reference

    def test_the_reference_is_the_schema_when_none_is_set(self):
        assert Schema()('{"name": "Ada"}', PERSON) == 1.0
        assert Schema()("{}", json.dumps(PERSON)) == 0.0
        assert Schema()("3", [PERSON, {"type": "integer"}]) == 1.0
        assert Schema()("3", None) is None

    def test_equal_schemas_make_equal_metrics(self):
        assert Schema(schema=PERSON) == Schema(schema=json.dumps(PERSON))
        assert hash(Schema(schema=PERSON)) == hash(Schema(schema=json.dumps(PERSON)))

    def test_a_wrong_schema_fails_when_built(self):
        with pytest.raises(InputError, match="not a JSON Schema"):
            Schema(schema={"type": "no such type"})
        with pytest.raises(InputError, match="not a JSON Schema"):
            Schema(schema="{")

    def test_nothing_is_fetched_for_a_reference_to_elsewhere(self):
        metric = Schema(schema={"$ref": "https://example.invalid/schema.json"})
        with pytest.raises(InputError, match=r"cannot resolve \$ref"):
            metric("{}")


@pytest.mark.parametrize(
    ("prediction", "reference", "score"),
    [
        ("['a', 'b']", '["a", "b"]', 1.0),
        ("{'l': 1, 't': 2}", '{"t": 2, "l": 1}', 1.0),
        ("[true, null]", "[True, None]", 1.0),
        ("'true'", '"true"', 1.0),
        ("'true'", "'True'", 0.0),
        ("'1'", "1", 0.0),
        ("(1,)", "[1]", 0.0),
        ("{2, 1}", "{1, 2}", 1.0),
        ("__import__('os')", "__import__('os')", 1.0),
        ("__import__('os')", "['os']", 0.0),
        ("[" * 2000, "[]", 0.0),
        ("9" * 20_000, "9" * 20_001, 0.0),
    ],
)
def test_literals_are_compared_as_data_and_never_run(prediction, reference, score):
    assert LiteralEqual()(prediction, reference) == score
