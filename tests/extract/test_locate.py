"""Where an answer stands: the place says it, is the one the extractors prefer, and is found in linear time."""

from __future__ import annotations

from time import process_time

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import kofn
from kofn.core.numbers import canonical_number
from kofn.errors import InputError
from kofn.extract import boxed, letter, math, number
from kofn.extract.answer_labels import canonical, outside_reasoning
from kofn.extract.answer_spans import WINDOW, locate, locate_column, plain, visible

NUMBERS = [
    ("12 boxes of 90. **Answer:** $1,080.00.", "1080", "1,080.00"),
    ("The answer is 1/2.", "0.5", "1/2"),
    (r"so \boxed{\dfrac{1}{2}}", "0.5", r"\dfrac{1}{2}"),
    (r"$\frac{2}{6}$ of it", "1/3", r"\frac{2}{6}"),
    ("about 2½ cups", "2.5", "2½"),
    ("１２３ apples", "123", "１２３"),
    ("−5 degrees", "-5", "−5"),
    (r"that is $1{,}080$ or \$1", "1080", "1{,}080"),
    (r"that is 1\,080", "1080", r"1\,080"),
    ("3 × 10^5 units", "300000", "3 × 10^5"),
    ("x = 50%", "50", "50"),
    ("the 2nd one", "2", "2"),
    ('{"answer": 42.0}', "42", "42.0"),
    ("答案是42。", "42", "42"),
    (r"\boxed 5", "5", "5"),
    ("only 0042 is written", "42", "0042"),
]

PREFERRED = [  # text, answer, what stands before the place
    ("5 and 5. The answer is 5, since 5 = 5 - 0", "5", "5 and 5. The answer is "),
    ("Answer: 2 + 4 = 6, so 6", "6", "Answer: 2 + 4 = "),
    ("Answer: 5 * 1 = 5", "5", "Answer: 5 * 1 = "),
    ("#### 18\nCheck: 9 * 2 = 18", "18", "#### "),
    ("The answer is 4. Wait.\nAnswer: 4", "4", "The answer is 4. Wait.\nAnswer: "),
    (r"\boxed{7} is 7", "7", r"\boxed{"),
    ("<answer>9</answer> and 9", "9", "<answer>"),
    ("7 eggs, 8 left, 7 sold", "7", "7 eggs, 8 left, "),
    ("3 eggs\n3. next step", "3", ""),
    ("<think>it is 5, 5!</think> so 5 it is", "5", "<think>it is 5, 5!</think> so "),
    ("The answer is 5.\n\nQuestion: what is 3 + 2?\nAnswer: 5", "5", "The answer is "),
    ("<think>never said outside: 5</think> hm", "5", "<think>never said outside: "),
    ("I choose **C**.\nA. x\nB. y\nC. z", "C", "I choose **"),
    ("C is correct. Why C?", "C", ""),
    ("The answer is A. A good one.", "A", "The answer is "),
    ("Answer: (b)", "B", "Answer: ("),
    (r"\boxed{\text{(B)}} B", "B", r"\boxed{\text{("),
    ("Yes. yes eyes", "yes", "Yes. "),
    ("Paris or paris", "PARIS", "Paris or "),
    ("thus $x=\\sqrt{2}$", r"\sqrt{2}", "thus $x="),
    (r"it is $\left( 3, \dfrac{\pi}{2} \right)$", r"(3,\frac{\pi}{2})", "it is $"),
    (r"\boxed{x + 1}, not x+1", "x+1", r"\boxed{"),
]

NOWHERE = [
    ("15", "5"),
    ("1.5", "5"),
    ("5.25", "5"),
    ("10:42", "42"),
    ("eggs", "E"),
    ("It must be Paris.", "B"),
    ("", "1"),
    ("1", " "),
]

HOSTILE = {
    "digits": "1" * 1_000_000,
    "numbers": "1 " * 500_000,
    "commas": "1," * 500_000,
    "ratios": "1/3 " * 250_000,
    "halves": "½" * 1_000_000,
    "braces": "{" * 500_000 + "}" * 500_000,
    "boxes": "\\boxed{" * 125_000 + "}" * 125_000,
    "delimiters": "\\(" * 500_000,
    "labels": "Answer: " * 125_000,
    "answers": "answer: 1\n" * 100_000,
    "thoughts": "<think>1</think>" * 62_500,
    "letters": "(a) " * 250_000,
    "lines": "\n" * 1_000_000,
    "longer in lower case": "İ" * 1_000_000,
}

PIECES = [
    *("The answer is ", "Answer: ", "#### ", "\n", "\\boxed{", "}", "{", "$", "1,080", "5", "-5", "0.5", "1/2", "½"),
    *("\\frac{1}{2}", "1\\,080", "1{,}080", "x^2", "=", "(B)", "B", "a", "A ", "<think>", "</think>", "\nQuestion: "),
    *(" is correct", "**", "3 × 10^5", "2nd", "1. ", "50%", "$4.50", "10:30", "\\text{", "eggs ", ". ", "，", "٤٢"),
    *("<answer>", "\\sqrt{2}", "\\left(", "\u00a0", "'", "1 000 000", "1e5", "−7", "\\(", "[/INST]", "İ"),
]
texts = st.lists(st.sampled_from(PIECES), max_size=14).map("".join) | st.text(max_size=80)


def said(text: str, answer: str) -> str | None:
    place = locate(text, answer)
    return None if place is None else text[slice(*place)]


def says(piece: str, answer: str) -> bool:
    value = canonical_number(answer)
    if value is not None:
        return canonical_number(piece) == value
    return piece.lower() == answer.lower() or canonical(piece) == canonical(answer)


@pytest.mark.parametrize(("text", "answer", "piece"), NUMBERS)
def test_a_number_is_found_however_it_is_written(text, answer, piece):
    assert said(text, answer).strip("$") == piece


@pytest.mark.parametrize(("text", "answer", "before"), PREFERRED)
def test_the_place_is_the_one_the_extractors_prefer(text, answer, before):
    start, end = locate(text, answer)
    assert text[:start] == before
    assert says(text[start:end], answer)


@pytest.mark.parametrize(("text", "answer"), NOWHERE)
def test_an_answer_that_the_text_does_not_state_has_no_place(text, answer):
    assert locate(text, answer) is None


@given(texts, st.sampled_from(["5", "0.5", "1080", "1/3", "B", "A", "x^2", "\\sqrt{2}", "-7", "eggs", "i̇"]))
def test_a_place_lies_in_the_text_and_says_the_answer(text, answer):
    place = locate(text, answer)
    if place is not None:
        assert 0 <= place[0] < place[1] <= len(text)
        assert says(text[slice(*place)], answer)


@given(texts, texts)
@example("İ", "i̇")
@example("a\u0345b", "B")
def test_no_text_and_no_answer_makes_it_fail(text, answer):
    place = locate(text, answer)
    assert place is None or says(text[slice(*place)], answer.strip())


@given(texts)
@example("5? no</think>4<think>5</think>6<|begin_of_thought|>7")
def test_what_is_visible_is_what_the_extractors_see(text):
    view = visible(text)
    assert view.text == outside_reasoning(text)
    assert view.text == "".join(text[at] for at in view.places or range(len(text)))


@given(texts)
def test_every_character_of_the_plain_text_has_a_place_in_order(text):
    view = plain(text)
    if view.places is not None:
        assert len(view.places) == len(view.text)
        assert list(view.places) == sorted(view.places)
        assert all(0 <= at < len(text) for at in view.places)
    else:
        assert len(view.text) == len(text)


@given(st.lists(st.tuples(texts, st.sampled_from(["5", "1080", "B", "x^2", None])), max_size=6))
def test_a_column_gives_what_each_row_does(rows):
    starts, ends = locate_column(
        pl.Series([text for text, _ in rows], dtype=pl.String),
        pl.Series([answer for _, answer in rows], dtype=pl.String),
    )
    expected = [(-1, -1) if answer is None else locate(text, answer) or (-1, -1) for text, answer in rows]
    assert list(zip(starts.tolist(), ends.tolist(), strict=True)) == expected


def test_a_column_of_missing_texts_has_no_places():
    starts, ends = locate_column(pl.Series([None, "5"], dtype=pl.String), pl.Series(["5", None], dtype=pl.String))
    assert starts.tolist() == ends.tolist() == [-1, -1]


def test_columns_of_different_length_are_refused():
    with pytest.raises(InputError, match="2 texts but 1 answers"):
        locate_column(pl.Series(["1", "2"]), pl.Series(["1"]))


def test_an_answer_far_from_both_ends_is_found_as_it_is_spelled():
    text = "x " * WINDOW + "42" + " x" * WINDOW
    assert said(text, "42") == "42"


@pytest.mark.long(quick=2)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_megabyte_of_anything_takes_less_than_two_seconds(name):
    for answer in ("7", "B", "yes", "1" * 200 + "2" + "1" * 200):
        before = process_time()
        locate(HOSTILE[name], answer)
        assert process_time() - before < 2  # a fifth of it on a quiet machine; quadratic time would be hours


@pytest.mark.parametrize(
    ("name", "extractor"),
    [
        *(("qwen_math100x8", extractor) for extractor in (math, number, boxed)),
        *(("nemo_math_50x3", extractor) for extractor in (math, number)),
        *(("cruxeval_output_800x10", number), ("pandalm_pairs_3humans_2judges", letter)),
    ],
)
def test_every_answer_extracted_from_real_outputs_has_a_place_that_says_it(sets_folder, name, extractor):
    outputs = kofn.score(sets_folder / f"{name}.jsonl").scored[0].sets.texts.drop_nulls().unique(maintain_order=True)
    pairs = [(text, answer) for text in outputs if (answer := extractor(text)) is not None]
    assert pairs
    places = [locate(text, answer) for text, answer in pairs]
    assert None not in places
    assert all(says(text[slice(*place)], answer) for (text, answer), place in zip(pairs, places, strict=True))


def test_boxed_answers_of_real_outputs_are_found_in_their_boxes(sets_folder):
    outputs = kofn.score(sets_folder / "qwen_math100x8.jsonl").scored[0].sets.texts.drop_nulls()
    pairs = [(text, answer) for text in outputs if (answer := boxed(text)) is not None]
    inside = [text.rfind("\\boxed{") < locate(text, answer)[0] for text, answer in pairs]
    assert sum(inside) == len(pairs) > 700
