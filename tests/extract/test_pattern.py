"""Parameterised extractors and the plain ones: pattern, JSON field, last line, text, reasoning."""

from __future__ import annotations

import pytest

from kofn.errors import InputError
from kofn.extract import JsonField, Pattern, boxed, last_line, letter, math, number, strip_reasoning, text


def test_a_pattern_takes_its_group_of_the_first_or_last_match() -> None:
    assert Pattern(r"= (\d+)")("a = 1, b = 2") == "1"
    assert Pattern(r"= (\d+)", take="last")("a = 1, b = 2") == "2"
    assert Pattern(r"\d+", group=0)("a = 1") == "1"
    assert Pattern(r"(?P<n>\d+)", group="n")("a = 1") == "1"
    assert Pattern(r"x(\d*)")("x") is None
    assert Pattern(r"(\d+)")("none") is None
    assert Pattern(r"(\d+)")(None) is None


@pytest.mark.parametrize(
    "arguments",
    [{"regex": "("}, {"regex": "a"}, {"regex": "(a)", "group": 2}, {"regex": "(a)", "group": "n"}],
)
def test_a_bad_pattern_is_refused_when_it_is_built(arguments: dict[str, object]) -> None:
    with pytest.raises(InputError) as caught:
        Pattern(**arguments)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_extractors_with_equal_parameters_are_equal_and_print_them() -> None:
    assert Pattern("(a)") == Pattern("(a)")
    assert repr(JsonField("a.b")) == "JsonField(path='a.b')"


@pytest.mark.parametrize(
    ("path", "output", "expected"),
    [
        ("answer", '{"answer": "B"}', "B"),
        ("answer", 'Sure!\n```json\n{"answer": 42.0}\n```\nDone.', "42"),
        ("answer", 'First {"answer": 1}, no: {"answer": 2}', "2"),
        ("answer", 'A set {x} and then {"answer": "ok"}', "ok"),
        ("a.b[1]", '{"a": {"b": [1, "two"]}}', "two"),
        ("[0]", "[7, 8]", "7"),
        ("a[-1].c", '{"a": [{"c": true}]}', "true"),
        ("answer", '{"answer": {"y": 1, "x": 2}}', '{"x": 2, "y": 1}'),
        ("answer", '{"answer": null}', None),
        ("answer", '{"answer": "  "}', None),
        ("answer", '{"other": 1}', None),
        ("a[3]", '{"a": [1]}', None),
        ("answer", '{"answer": "cut', None),
        ("answer", '<think>{"answer": 1}</think>{"answer": 3}', "3"),
        ("answer", "no json", None),
        ("answer", '{"answer": 1.50} more {"other": 2}', "1.5"),
        ("answer", '{"answer": 1} then {"answer": null}', None),
        ("a.b", '{"a": {"b": 1}} {"a": {"c": 2}} {"a": 3}', "1"),
    ],
)
def test_a_json_field_is_found_in_the_last_object_that_has_it(path: str, output: str, expected: str | None) -> None:
    assert JsonField(path)(output) == expected


@pytest.mark.parametrize("path", ["", ".", "a..b", "a[x]", "a[0"])
def test_a_bad_json_path_is_refused(path: str) -> None:
    with pytest.raises(InputError, match="json_field path"):
        JsonField(path)


def test_last_line_and_text() -> None:
    assert last_line("a\n\n b \n\n") == "b"
    assert last_line("```python\nprint(1)\n```") == "print(1)"
    assert last_line("<think>a\nb") is None
    assert last_line("a\n\n---") == "a"
    assert last_line("---\n**") is None
    assert text("  a\nb ") == "a\nb"
    assert text(" \n") is None


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("<think>5</think>6", "6"),
        ("<thinking>5</thinking>\n6", "6"),
        ("<Reasoning>5</Reasoning> 6", "6"),
        ("<|begin_of_thought|>5<|end_of_thought|>6", "6"),
        ("5 and 4</think>6", "6"),
        ("<think>5", None),
        ("<think>5</think>", None),
        ("<think>a</think>6<think>b</think>7", "67"),
        ("<think>the <think> tag</think>6", "6"),
        ("1 < 2 and 3 > 2", "1 < 2 and 3 > 2"),
    ],
)
def test_reasoning_blocks_are_removed(output: str, expected: str | None) -> None:
    assert strip_reasoning(output) == expected


@pytest.mark.parametrize("extractor", [letter, number, math, boxed, last_line, text, strip_reasoning, JsonField()])
def test_no_text_has_no_answer(extractor: object) -> None:
    assert extractor(None) is None  # type: ignore[operator]
    assert extractor("") is None  # type: ignore[operator]
