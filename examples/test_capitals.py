"""Tests of a system that does not always answer alike; docs/pytest.md runs them."""

import itertools

import pytest

REPLIES = {
    "France": itertools.cycle(["Paris.", "It is Paris!", "Lyon?", "Paris", "Paris, of course"]),
    "Kenya": itertools.cycle(["Nairobi"]),
    "Australia": itertools.cycle(["Canberra", "Sydney", "Canberra", "Melbourne", "Canberra"]),
}


def ask(country):
    return next(REPLIES[country])


@pytest.mark.kofn(repeats=5, require="pass_hat(k=2) >= 0.5")
@pytest.mark.parametrize(("country", "capital"), [("France", "Paris"), ("Kenya", "Nairobi"), ("Australia", "Canberra")])
def test_capital(country, capital):
    assert capital in ask(country)


@pytest.mark.kofn(repeats=5, require="mean >= 0.7", over="cases")
@pytest.mark.parametrize("country", ["France", "Kenya", "Australia"])
def test_brief(country, kofn_score):
    reply = ask(country)
    kofn_score(min(1.0, 8 / len(reply)), output=reply)
