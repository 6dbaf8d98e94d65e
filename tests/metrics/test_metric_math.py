"""Mathematical equivalence."""

from __future__ import annotations

import threading

import pytest

from kofn.metrics import MathEqual
from kofn.metrics import numeric as mathematical


@pytest.mark.parametrize(
    ("prediction", "reference", "score"),
    [
        (r"\frac{1}{2}", "0.5", 1),
        (r"$\frac{1}{2}$", r"\boxed{\frac{2}{4}}", 1),
        ("(x+1)^2", "x^2 + 2x + 1", 1),
        ("(x-1)^2", "x^2 + 2x + 1", 0),
        (r"2\sqrt{2}", r"\sqrt{8}", 1),
        (r"\{1, 2\}", r"\{2, 1\}", 1),
        ("(3, 4)", "(4, 3)", 0),
        ("[1, 2)", "[1, 2]", 0),
        ("y = 2x + 1", "2x + 1", 1),
        (r"\text{Monday}", "monday", 1),
        ("evil", "live", 0),
        ("1,000", "1000", 1),
        ("", "", 0),
        (r"\frac{", r"\sqrt{2}", 0),
        ("x" * 3000 + "+1", "1+" + "x" * 3000, 0),
    ],
)
def test_documented_equivalences(prediction, reference, score):
    assert MathEqual()(prediction, reference) == score


def test_any_of_several_references_may_match():
    assert MathEqual()(r"2\sqrt{2}", ["3", r"\sqrt{8}"]) == 1.0
    assert MathEqual()(None, "3") == 0.0
    assert MathEqual()("3", None) is None


def test_a_text_that_cannot_be_parsed_still_equals_itself():
    assert MathEqual()(r"\frac{{", r"\frac{{") == 1.0


def test_it_works_outside_the_main_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(MathEqual()("(a+b)(a-b)", "a^2-b^2")))
    thread.start()
    thread.join()
    assert found == [1.0]


def test_running_out_of_time_is_not_graded(monkeypatch):
    from math_verify.errors import TimeoutException

    def never_ends(*args, **kwargs):
        raise TimeoutException

    monkeypatch.setattr("math_verify.verify", never_ends)
    assert MathEqual()("z^7", "z^8") is None
    assert MathEqual()("z^7", ["z^8", "z^7"]) == 1.0


def test_common_forms_are_compared_without_math_verify(monkeypatch):
    mathematical._has_math_verify.cache_clear()
    monkeypatch.setattr(mathematical.importlib.util, "find_spec", lambda _name: None)
    try:
        assert MathEqual()(r"\sqrt{12}", r"2\sqrt{3}") == 1.0
        assert MathEqual()(r"\int_0^1 x\,dx", r"\frac{1}{2}") == 0.0
    finally:
        mathematical._has_math_verify.cache_clear()
