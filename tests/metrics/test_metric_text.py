"""Overlap metrics against other implementations and slow definitions."""

from __future__ import annotations

import sys
from functools import lru_cache

import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from kofn.errors import MissingExtra
from kofn.metrics import Bleu, Chrf, RougeL
from kofn.metrics.text_match import lcs_length

SENTENCES = [
    ("the cat sat on the mat", "the cat is on the mat"),
    (
        "It is a guide to action which ensures that the military obeys.",
        "It is a guide to action that ensures.",
    ),
    ("Hello, world!", "hello world"),
    ("totally unrelated", "something else entirely"),
    ("short", "a considerably longer reference than the output"),
]


@pytest.mark.parametrize(("prediction", "reference"), SENTENCES)
def test_bleu_and_chrf_are_sacrebleus_divided_by_100(prediction, reference):
    bleu = sacrebleu.sentence_bleu(prediction, [reference], use_effective_order=True).score
    assert Bleu()(prediction, reference) == pytest.approx(bleu / 100)
    chrf = sacrebleu.sentence_chrf(prediction, [reference]).score
    assert Chrf()(prediction, reference) == pytest.approx(chrf / 100)
    chrf_plus = sacrebleu.sentence_chrf(prediction, [reference], word_order=2).score
    assert Chrf(word_order=2)(prediction, reference) == pytest.approx(chrf_plus / 100)


def test_bleu_settings_reach_sacrebleu():
    assert Bleu(ignore_case=True)("HELLO WORLD", "hello world") == pytest.approx(1.0)
    assert Bleu(tokenize="char")("abcd", "abce") > Bleu()("abcd", "abce")


@pytest.mark.parametrize(("metric", "name"), [(Bleu, "bleu"), (Chrf, "chrf")])
def test_a_missing_sacrebleu_is_one_line_that_names_the_extra(metric, name, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    setting = {"tokenize": "intl"} if metric is Bleu else {"word_order": 5}  # not built before, so not cached
    with pytest.raises(MissingExtra, match=rf"metric {name} needs sacrebleu: pip install 'kofn\[text\]'"):
        metric(**setting)


def slow_lcs(left: str, right: str) -> int:
    @lru_cache(None)
    def length(i: int, j: int) -> int:
        if i == len(left) or j == len(right):
            return 0
        if left[i] == right[j]:
            return 1 + length(i + 1, j + 1)
        return max(length(i + 1, j), length(i, j + 1))

    return length(0, 0)


@given(left=st.text("abc", max_size=12), right=st.text("abc", max_size=12))
@settings(deadline=None)
def test_lcs_length_is_that_of_the_recursive_definition(left, right):
    assert lcs_length(left, right) == slow_lcs(left, right)


def test_rouge_l_of_lins_worked_example():
    # Lin 2004, section 3.1: S1 against S2 and S3, where beta is 1
    assert RougeL()("police kill the gunman", "police killed the gunman") == pytest.approx(3 / 4)
    assert RougeL()("the gunman kill police", "police killed the gunman") == pytest.approx(2 / 4)


def test_rouge_l_weighs_recall_more_as_beta_grows():
    short, long = "police gunman", "police killed the gunman today"
    precision, recall = 1.0, 2 / 5
    for beta in (0.5, 1.0, 2.0):
        expected = (1 + beta**2) * precision * recall / (recall + beta**2 * precision)
        assert RougeL(beta=beta)(short, long) == pytest.approx(expected)
    assert RougeL(beta=100.0)(short, long) == pytest.approx(recall, abs=1e-3)


def test_rouge_l_ignores_case_and_punctuation_but_not_order():
    assert RougeL()("Police, killed!", "police killed") == 1.0
    assert RougeL()("killed police", "police killed") == 0.5
    assert RougeL()("...", "words") == 0.0
