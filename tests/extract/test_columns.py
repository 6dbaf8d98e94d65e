"""The columnar path gives what the extractor gives, row by row."""

from __future__ import annotations

import json
import random
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.extract.cases import ROWS
from tests.shared import DATA, needs_shared

from kofn import extract
from kofn.errors import InputError
from kofn.extract import extract_column
from kofn.extract import extractor_choice as columns

COLUMNAR = [
    extract.number,
    extract.letter,
    extract.labelled_text,
    extract.math,
    extract.boxed,
    extract.letter_word_boundary,
    extract.letter_first,
    extract.number_simple,
    extract.text,
    extract.last_line,
]

FRAGMENTS = st.sampled_from(
    [
        "The answer is ",
        "the final answer is: ",
        "The correct answer is ",
        "Answer: ",
        "\nAnswer: ",
        "Final Answer: ",
        "\n#### ",
        "#### ",
        "A: ",
        "each answer is ",
        "every answer: ",
        "answer to the answer is ",
        "\\boxed{",
        "}",
        "$",
        "42",
        "-0",
        "0",
        "007",
        "1,080",
        "12,34",
        "3.50",
        "3.00",
        "-7.25",
        "1e3",
        "3/4",
        "50%",
        "٤٢",
        "−5",
        "½",
        "2nd",
        "A",
        "B",
        "(C)",
        "(d)",
        "a",
        "**D**",
        "E.",
        "F",
        " not B but C",
        "\nB. bar",
        "A good",
        "<answer>",
        "</answer>",
        "<b>",
        "</b>",
        "wrong ",
        "incorrect ",
        "other ",
        "correct ",
        "not ",
        "neither A nor B",
        " or ",
        "'",
        "_",
        "10^",
        "1 234 567",
        " 234",
        "[/INST]",
        "\n\nProblem 2: ",
        " ",
        "  ",
        "\n",
        ".",
        ". ",
        "!",
        "?",
        ":",
        "=",
        " = ",
        "\\",
        "\\\\",
        "\r\n",
        "\t",
        "\xa0",
        "\u2028",
        "\x1c",
        " dollars",
        " eggs in all",
        " times 3",
        " because",
        " Janet’s",
        "é",
        "ß",
        "İ",
        "ſ",
        "K",
        "ẚ",
        "答案是",
        "\n\nQuestion: ",
        "\nQ: ",
        "\nquestion 2．",
        "\n\xa0Problem: ",
        "<think>",
        "</think>",
        "<|im_end|>",
        "[INST]",
        "</s>",
        "So 3 + 4 = 7. ",
        "x" * 90,
        "- ",
        "**",
        "#",
        "th",
        "$1,000,000",
        "9" * 20,
    ]
)
OUTPUTS = st.lists(st.lists(FRAGMENTS, max_size=8).map("".join), min_size=1, max_size=12)


@pytest.mark.parametrize("extractor", COLUMNAR)
@settings(max_examples=60, deadline=None)
@given(texts=OUTPUTS)
def test_a_column_equals_its_rows_on_generated_texts(extractor: Any, texts: list[str]) -> None:
    assert extract_column(extractor, pl.Series(texts)).to_list() == [extractor(text) for text in texts]


@settings(max_examples=50, deadline=None)
@given(
    texts=OUTPUTS,
    choices=st.sampled_from(
        [list("ABCD"), list("abc"), ["1", "2"], ["yes", "no"], list("ABCDEFGHIJ"), ["(b)", "(a)"], ["a good", "not B"]]
    ),
)
def test_a_column_of_letters_equals_its_rows_for_any_choices(texts: list[str], choices: list[str]) -> None:
    expected = [extract.letter(text, choices) for text in texts]
    assert extract_column(extract.letter, pl.Series(texts), choices).to_list() == expected
    rows = pl.Series([choices] * len(texts))
    assert extract_column(extract.letter, pl.Series(texts), rows).to_list() == expected


@pytest.mark.parametrize("extractor", COLUMNAR)
def test_a_column_equals_its_rows_on_the_table(extractor: Any) -> None:
    texts = [output for _, output, _, _ in ROWS]
    assert extract_column(extractor, pl.Series(texts)).to_list() == [extractor(text) for text in texts]


@needs_shared(DATA)
@pytest.mark.parametrize("extractor", COLUMNAR)
def test_a_column_equals_its_rows_on_real_outputs(extractor: Any) -> None:
    lines = (DATA / "sets" / "qwen_math100x8.jsonl").read_text(encoding="utf-8").splitlines()
    lines += (DATA / "sets" / "nemo_math_50x3.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [output["text"] for line in lines for output in json.loads(line)["outputs"]]
    assert extract_column(extractor, pl.Series(texts)).to_list() == [extractor(text) for text in texts]


@pytest.mark.parametrize(
    ("extractor", "texts"),
    [
        (extract.number, ["So 3.\nThe answer is 42.", "It is 3.\n#### 1,080", "It is $\\boxed{7}$."]),
        (extract.letter, ["So it is.\nThe answer is (B).", "Well.\nAnswer: C", "It is $\\boxed{D}$."]),
    ],
)
def test_common_shapes_do_not_need_the_extractor(extractor: Any, texts: list[str]) -> None:
    shape = columns._shape(extractor, None)
    assert shape is not None
    assert shape(pl.Series(texts)).to_list() == [extractor(text) for text in texts]


def test_rows_keep_their_order_over_several_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "SLICE_ROWS", 7)
    texts = [f"So.\nThe answer is {i}." if i % 3 else f"{i} in all" for i in range(100)]
    assert extract_column(extract.number, pl.Series("output", texts)).to_list() == [str(i) for i in range(100)]


def test_null_and_empty_columns_stay_so() -> None:
    result = extract_column(extract.number, pl.Series("output", [None, "no"], dtype=pl.String))
    assert result.to_list() == [None, None]
    assert result.name == "output"
    empty = extract_column(extract.number, pl.Series("output", [], dtype=pl.String))
    assert (len(empty), empty.dtype, empty.name) == (0, pl.String, "output")


def test_a_users_extractor_is_called_once_a_different_text() -> None:
    calls: list[str] = []

    def first_word(text: str) -> str | None:
        calls.append(text)
        return text.split()[0] if text.split() else None

    assert extract_column(first_word, pl.Series(["a b", "c", "a b", None, ""])).to_list() == [
        "a",
        "c",
        "a",
        None,
        None,
    ]
    assert sorted(calls) == ["", "a b", "c"]


def test_an_extractor_that_returns_no_text_is_named() -> None:
    with pytest.raises(InputError, match="length returned int"):
        extract_column(_length, pl.Series(["a"]))


def _length(text: str) -> Any:
    return len(text)


def test_choices_by_row_must_match_the_texts() -> None:
    with pytest.raises(InputError, match="1 rows for 2 texts"):
        extract_column(extract.letter, pl.Series(["a", "b"]), pl.Series([["A"]]))


# what stands around numbers, in any order: signs, points, dates, fractions, labels that are none
_PIECES = """
so he has total the apples of eggs costs $ dollars 5 12 1,200 3.50 - + = * / x 10 2nd 3rd 1. 2) 7: at pm is 0 00 007 -5
(4) 3/4 2024-05-06 3:30 % ^ 10^3 e5 1e3 .5 5. and , . ! A: ans plan means kg m2 $5 20 12,34 1,2345 -$ 1.2.0
100 234 1 234 567 10 ^ 2 10** 10^6 \nQ: \nquestion: [INST] q: Problem.
"""


@pytest.mark.parametrize("seed", range(4))
def test_a_column_equals_its_rows_on_numbers_in_any_company(seed: int) -> None:
    rng, pieces = random.Random(seed), _PIECES.split()
    texts = [
        "".join(rng.choice(pieces) + rng.choice(["", " ", " ", " ", "\n"]) for _ in range(rng.randint(1, 9)))
        for _ in range(3000)
    ]
    column = extract_column(extract.number, pl.Series(texts)).to_list()
    wrong = [(text, found) for text, found in zip(texts, column, strict=True) if found != extract.number(text)]
    assert wrong == []
