"""The proposed extractor and the audit of several."""

from __future__ import annotations

import json

import pytest

from kofn.errors import InputError
from kofn.extract import audit, choose_extractor, letter, letter_first, number, number_simple

BOX = r"so $\boxed{7}$"


@pytest.mark.parametrize(
    ("references", "texts", "choices", "expected"),
    [
        (["Paris"], ["x"], True, "letter"),
        (["A", "(B)", "C."], ["x"], False, "letter"),
        (["J"], ["x"], False, "letter"),
        (["1,080", "3/4", "$5"], ["x"], False, "number"),
        (["1"] * 9 + ["two"], ["x"], False, "number"),
        (["1"] * 8 + ["two", "three"], ["x"], False, "text"),
        ([r"\sqrt{2}", "5"], ["x"], False, "math"),
        (["x + 1", "y"], [BOX, BOX, "z"], False, "math"),
        (["a long sentence"], ["x"], False, "text"),
        (["(R)"] * 5 + ["(A)"] * 5, ["x"], False, "letter"),
        (["T", "F"], ["So the answer is T."], False, "labelled_text"),
        (["x", "y"], ["So the answer is x.", "no"], False, "labelled_text"),
        (["yes", "no", "yes"], ["She tells the truth, as the story says in its third line."], False, "labelled_text"),
        (["yes", "no", "yes"], ["yes", "no"], False, "text"),
        (["Paris", "Rome"], ["The capital of France is the city of Paris."], False, "text"),
        (["1"] * 9 + ["x + 1"], [BOX, BOX, "z"], False, "math"),
        (["1"] * 9 + ["2"], [BOX, BOX, "z"], False, "number"),
        ([], [BOX, BOX, "x"], False, "math"),
        ([], ["The answer is 4", "#### 5", "x"], False, "number"),
        ([], ["Answer: B", "The answer is (C)", "x"], False, "letter"),
        ([], ["a poem"], False, "text"),
        ([], [], False, "text"),
    ],
)
def test_the_extractor_fits_the_references_or_the_texts(
    references: list[str], texts: list[str], choices: bool, expected: str
) -> None:
    choice = choose_extractor(references, texts, choices)
    assert choice.name == expected
    assert choice.reason


def test_an_audit_reports_agreement_failures_scores_and_span() -> None:
    texts = ["2 + 2 = 4", "Answer: 5 (x = 1)", "no idea", None]
    result = audit(texts, {"number": number, "simple": number_simple}, ["4", "5.0", "6", None])
    assert result.n == 4
    assert result.agreement["number"] == {"number": 1.0, "simple": 0.75}
    assert result.failure_rate == {"number": 0.5, "simple": 0.5}
    assert result.score == {"number": pytest.approx(2 / 3), "simple": pytest.approx(1 / 3)}
    assert result.span == pytest.approx(1 / 3)
    assert result.disagreements == (1,)
    assert json.loads(json.dumps(result.to_dict()))["disagreements"] == [1]


def test_an_audit_without_references_has_no_scores() -> None:
    result = audit(["The answer is C"], {"letter": letter, "first": letter_first})
    assert result.score is None
    assert result.span is None
    assert result.disagreements == (0,)


def test_an_audit_takes_choices_for_all_rows_or_one_list_a_row() -> None:
    texts = ["Paris", "Rome"]
    assert audit(texts, {"letter": letter}, ["B", "A"], choices=["Rome", "Paris"]).score == {"letter": 1.0}
    rows = [["Paris", "Rome"], ["Paris", "Rome"]]
    assert audit(texts, {"letter": letter}, ["a", "b"], choices=rows).score == {"letter": 1.0}


def test_an_audit_uses_the_callers_equality() -> None:
    result = audit(["4"], {"number": number}, ["5"], equal=lambda *_: True)
    assert result.score == {"number": 1.0}


def test_an_audit_refuses_lists_of_unequal_length() -> None:
    with pytest.raises(InputError, match="2 references for 1 texts"):
        audit(["a"], {"letter": letter}, ["a", "b"])
    with pytest.raises(InputError, match="lists of choices"):
        audit(["a"], {"letter": letter}, choices=[["a"], ["b"]])
    with pytest.raises(InputError, match="at least one"):
        audit(["a"], {})
