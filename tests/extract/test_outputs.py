"""Every extractor on outputs as models write them, on real labelled outputs, and on hostile text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.cpu import cpu_seconds
from tests.extract.cases import ROWS
from tests.shared import DATA, needs_shared

from kofn import extract
from kofn.core.numbers import canonical_number, numbers_equal, parse_number

EXTRACTORS = [
    extract.letter,
    extract.number,
    extract.labelled_text,
    extract.math,
    extract.boxed,
    extract.last_line,
    extract.text,
    extract.none,
    extract.strip_reasoning,
    extract.letter_word_boundary,
    extract.letter_first,
    extract.number_anchor,
    extract.number_simple,
    extract.JsonField(),
    extract.Pattern(r"answer is (\w+)"),
]


def _lines(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / path).read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(("name", "output", "choices", "expected"), ROWS)
def test_the_answer_is_found(name: str, output: str, choices: tuple[str, ...] | None, expected: str | None) -> None:
    assert getattr(extract, name)(output, choices) == expected


def test_the_table_is_large_enough_to_mean_something() -> None:
    assert len(ROWS) >= 170


def _agreement(path: str, extractor: Any) -> float:
    agree = [
        numbers_equal(extractor(output["text"]), case["gold"]) == bool(output["pass"])
        for case in _lines(path)
        if parse_number(case["gold"]) is not None
        for output in case["outputs"]
    ]
    return sum(agree) / len(agree)


@needs_shared(DATA)
@pytest.mark.parametrize("extractor", [extract.number, extract.math])
def test_extraction_agrees_with_the_labels_of_real_outputs(extractor: Any) -> None:
    assert _agreement("sets/qwen_math100x8.jsonl", extractor) >= 0.998
    # its labels count only boxed answers, and read a box in an invented next question
    assert _agreement("sets/nemo_math_50x3.jsonl", extractor) >= 0.90


@needs_shared(DATA)
def test_every_grade_school_gold_is_read() -> None:
    rows = [row["answer"] for row in _lines("tasks/gsm8k_test.jsonl")]
    assert [extract.number(row) for row in rows] == [canonical_number(row.split("####")[1]) for row in rows]


@needs_shared(DATA)
def test_every_boxed_gold_is_read() -> None:
    rows = _lines("tasks/math500_test.jsonl")
    assert [extract.math(row["solution"]) for row in rows] == [
        extract.boxed(rf"\boxed{{{row['answer']}}}") for row in rows
    ]


@needs_shared(DATA)
def test_human_rationales_name_their_option() -> None:
    rows = _lines("tasks/aqua_test.jsonl")
    right = sum(extract.letter(row["rationale"], row["options"]) == row["correct"] for row in rows)
    assert right / len(rows) >= 0.98


HOSTILE = [
    "answer ",
    "answer is not ",
    "answer to ",
    "{",
    "1,",
    "11,",
    "9",
    "<think>",
    " ",
    "\n",
    "\\boxed{",
    "$",
    "1 ",
    "(A) ",
    "\nA. x",
    '{"a":',
    "1/",
    "1.",
    "\\frac{1}{",
    "*",
    "I choose ",
    "option is ",
    "= ",
    "answer is 5\nQ: ",
    "\\",
    "**A** ",
    "not A, ",
    "neither A nor ",
    "not the ",
    "<answer>",
    "<answer>5</answer>",
    "_",
    "'A ",
    "1 234 ",
    "10^",
    "\nQ: 5",
    "A <",
    "wrong answer is correct ",
    "A or B, ",
    "wait, actually ",
    "it is not ",
    "Dr. ",
]


@pytest.mark.long(quick=8)
@pytest.mark.parametrize("unit", HOSTILE)
def test_hostile_text_takes_linear_time(unit: str) -> None:
    text = unit * (100_000 // len(unit))
    for extractor in EXTRACTORS:
        seconds = cpu_seconds(lambda extractor=extractor: extractor(text))
        assert seconds < 20, extractor  # what must not happen takes hours
