"""Answers in LaTeX: their tidy form, and whether two say the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kofn import extract
from kofn.core.latex import latex_equal, tidy_latex

PAIRS = [  # what an output ends with, its reference, whether they say the same
    (
        "\\boxed{\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}}",
        "\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}",
        True,
    ),
    ("\\boxed{\\begin{pmatrix}1&2\\\\ 3&4\\end{pmatrix}}", "\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}", True),
    ("\\boxed{\\begin{bmatrix}1&2\\\\3&4\\end{bmatrix}}", "\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}", True),
    ("\\boxed{\\begin{pmatrix}1&2\\\\3&5\\end{pmatrix}}", "\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}", False),
    (
        "\\boxed{\\begin{pmatrix} -1/2 \\\\ 3 \\end{pmatrix}}",
        "\\begin{pmatrix} -\\frac{1}{2} \\\\ 3 \\end{pmatrix}",
        True,
    ),
    ("\\boxed{[1, 2)}", "[1,2)", True),
    ("\\boxed{(-\\infty, 2]}", "(-\\infty,2]", True),
    ("\\boxed{(1,2)}", "[1,2]", False),
    ("\\boxed{x \\in [1,2)}", "[1,2)", True),
    ("\\boxed{\\{1, 2, 3\\}}", "\\{3,2,1\\}", True),
    ("\\boxed{1,2,3}", "1,2,3", True),
    ("\\boxed{3,2,1}", "1,2,3", True),
    ("\\boxed{(3, \\frac{\\pi}{2})}", "\\left( 3, \\frac{\\pi}{2} \\right)", True),
    ("\\boxed{2600g}", "2600", True),
    ("\\boxed{68 ft^2}", "68", True),
    ("\\boxed{18 \\text{ integers}}", "18", True),
    ("\\boxed{68\\text{ ft}^2}", "68", True),
    ("\\boxed{68 \\text{ square feet}}", "68", True),
    ("\\boxed{\\$7.50}", "7.5", True),
    ("\\boxed{90^\\circ}", "90", True),
    ("\\boxed{90}", "90^\\circ", True),
    ("\\boxed{25\\%}", "25", True),
    ("\\boxed{25\\%}", "25\\%", True),
    ("\\boxed{\\dfrac{3}{4}}", "\\frac34", True),
    ("\\boxed{\\tfrac{3}{4}}", "\\frac{3}{4}", True),
    ("\\boxed{0.75}", "\\frac{3}{4}", True),
    ("\\boxed{x=5}", "5", True),
    ("\\boxed{5}", "x=5", True),
    ("\\boxed{\\text{(C)}}", "\\text{C}", True),
    ("\\boxed{\\text{Evelyn}}", "Evelyn", True),
    ("\\boxed{2\\sqrt{3}}", "2 \\sqrt{3}", True),
    ("\\boxed{\\sqrt{12}}", "2\\sqrt{3}", True),
    ("\\boxed{x^2+2x+1}", "(x+1)^2", True),
    ("\\boxed{10_{2}}", "10_2", True),
    ("\\boxed{1,\\!000}", "1000", True),
    ("\\boxed{-\\frac{1}{2}}", "-\\dfrac12", True),
    ("\\boxed{1 \\frac{1}{2}}", "\\frac{3}{2}", True),
    ("\\boxed{5 \\text{ or } 6}", "5, 6", True),
    ("\\boxed{\\pm 3}", "-3, 3", True),
    ("\\boxed{\\frac{\\sqrt{2}}{2}}", "\\frac{1}{\\sqrt{2}}", True),
    ("\\boxed{y = 2x + 3}", "y=2x+3", True),
    ("\\boxed{2x+3}", "y=2x+3", True),
    ("\\boxed{\\text{June 20}}", "\\text{June 20}", True),
    ("\\boxed{6\\text{ PM}}", "6 \\text{ PM}", True),
    ("\\boxed{\\overline{AB}}", "\\overline{AB}", True),
    ("\\boxed{(1,2) \\cup (3,4)}", "(1,2)\\cup(3,4)", True),
    ("\\boxed{(3,4) \\cup (1,2)}", "(1,2)\\cup(3,4)", True),
    ("\\boxed{5\\text{ cm}}", "5\\text{ cm}", True),
    ("\\boxed{5}", "5\\text{ cm}", True),
    ("\\boxed{3\\text{ cm}}", "5\\text{ cm}", False),
    ("\\boxed{11\\sqrt2}", "11\\sqrt{2}", True),
    ("\\boxed{a+b}", "b+a", True),
    ("\\boxed{\\frac{x}{2}}", "x/2", True),
    ("\\boxed{\\$18}", "18\\text{ dollars}", True),
    ("\\boxed{18\\text{ dollars}}", "\\$18", True),
    (r"\boxed{\text{evil}}", r"\text{live}", False),
    (r"\boxed{x+1}", "y+1", False),
    (r"\boxed{2x+3}", "2x+4", False),
    (r"\boxed{\frac12}", r"\frac{1}{3}", False),
    (r"\boxed{5!}", "120", True),
    (r"\boxed{|-3|}", "3", True),
    (r"\boxed{\sqrt[3]{8}}", "2", True),
    (r"\boxed{\sin^2 x + \cos^2 x}", "1", False),
    (r"\boxed{2^{10}}", "1024", True),
    (r"\boxed{\{1,2\}}", r"\{1,2,3\}", False),
    (r"\boxed{(1,2,3)}", "(3,2,1)", False),
]
_COMMANDS = r"\frac \sqrt \pm \cup \begin{pmatrix} \end{pmatrix} \\ & { } ( ) [ ] | , ^ _ ! + - / * x 12 0"
PIECES = st.sampled_from([*_COMMANDS.split(), " "])


@pytest.mark.parametrize(("output", "reference", "same"), PAIRS)
def test_two_answers_are_equal_where_they_say_the_same(output: str, reference: str, same: bool) -> None:
    answer = extract.math(output)
    assert answer is not None
    assert latex_equal(answer, reference) is same
    assert latex_equal(reference, answer) is same


@given(st.lists(PIECES, max_size=60).map("".join), st.lists(PIECES, max_size=60).map("".join))
def test_no_text_makes_the_comparison_fail(left: str, right: str) -> None:
    assert latex_equal(left, right) is latex_equal(right, left)
    assert latex_equal(left, left) is bool(left and latex_equal(left, left))


@pytest.mark.parametrize("unit", ["(", "{", r"\frac{", r"\sqrt", "-", "1,", "x^", r"\begin{pmatrix}", "9!", "1^9"])
def test_hostile_answers_are_given_up_at_once(unit: str) -> None:
    assert latex_equal(unit * 20, unit * 20)
    assert latex_equal(unit * 20, unit * 20 + "x") is False
    assert latex_equal(unit * 100_000, unit * 100_001) is False


def test_layout_commands_are_dropped_and_rows_kept() -> None:
    assert tidy_latex(r"$\left( 3,\; \dfrac{\pi}{2} \right)$") == r"(3,\frac{\pi}{2})"
    assert tidy_latex(r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}") == r"\begin{pmatrix}1\\2\end{pmatrix}"
