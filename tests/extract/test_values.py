"""Numbers: what parses, one canonical text a value, comparison by value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cpu import cpu_seconds

from kofn.core.numbers import canonical_number, normalize_numeric, numbers_equal, parse_number
from kofn.errors import InputError

if TYPE_CHECKING:
    from fractions import Fraction

CANONICAL = [
    ("1_000", "1000"),
    ("1'234'567", "1234567"),
    ("1.234,50", "1234.5"),
    ("12 345,67", "12345.67"),
    ("2^3", "8"),
    ("2^{10}", "1024"),
    ("1.5 million", "1500000"),
    ("20 thousand", "20000"),
    ("42", "42"),
    (" 42 ", "42"),
    ("$42$", "42"),
    (r"\boxed{42}", "42"),
    (r"$\boxed{42}$.", "42"),
    (r"\(42\)", "42"),
    ("**42.**", "42"),
    ("`42`", "42"),
    ("42.", "42"),
    ("29.00", "29"),
    ("1,080", "1080"),
    ("1080.00", "1080"),
    ("1,234.50", "1234.5"),
    ("1,00,000", "100000"),
    ("1 234", "1234"),
    ("1\u2009234", "1234"),
    ("1\u00a0234\u00a0567", "1234567"),
    ("1{,}234", "1234"),
    (r"10,\!000", "10000"),
    ("-42", "-42"),
    ("−42", "-42"),
    ("–5", "-5"),
    ("+3", "3"),
    ("-0", "0"),
    ("-$5", "-5"),
    ("$-5", "-5"),
    ("€ 12.50", "12.5"),
    ("₹1,50,000", "150000"),
    (r"\$29.00", "29"),
    ("50%", "50"),
    (r"12.5\%", "12.5"),
    (r"30^\circ", "30"),
    ("3/4", "0.75"),
    ("0.75", "0.75"),
    (r"\frac{3}{4}", "0.75"),
    (r"\dfrac{3}{4}", "0.75"),
    (r"-\tfrac{1}{3}", "-1/3"),
    (r"\frac{-2}{6}", "-1/3"),
    (r"\frac34", "0.75"),
    ("1 1/2", "1.5"),
    (r"1\frac{1}{2}", "1.5"),
    ("2½", "2.5"),
    ("1/3", "1/3"),
    ("2/6", "1/3"),
    ("1.5e3", "1500"),
    ("1.5×10^3", "1500"),
    (r"1.5 \times 10^{3}", "1500"),
    ("3×10⁻²", "0.03"),
    (".5", "0.5"),
    ("٤٢", "42"),
    ("１２", "12"),
    (7, "7"),
    (2.5, "2.5"),
    (0.1, "0.1"),
]


@pytest.mark.parametrize(("text", "expected"), CANONICAL)
def test_one_value_has_one_canonical_text(text: object, expected: str) -> None:
    assert canonical_number(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "-",
        "$",
        "none",
        "about 5",
        "5 apples",
        "1.2.3",
        "--5",
        "42..",
        "1,2345",
        "3,14",
        "1_00",
        "12_34_567",
        "0x10",
        "nan",
        "inf",
        "-inf",
        "1e401",
        "1e99999",
        "1/0",
        r"\frac{1}{0}",
        "2^x",
        "9^999",
        "5 - 1/2",
        "9" * 3000,
        True,
        False,
        None,
        float("nan"),
        float("inf"),
        [1],
        10**500,
    ],
)
def test_what_is_no_number_parses_to_none(text: object) -> None:
    assert parse_number(text) is None
    assert canonical_number(text) is None


@given(st.fractions(min_value=-(10**30), max_value=10**30))
def test_a_fraction_survives_its_canonical_text(value: Fraction) -> None:
    text = canonical_number(value)
    assert parse_number(text) == value
    assert canonical_number(text) == text


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300))
def test_a_float_equals_its_own_text(value: float) -> None:
    assert numbers_equal(repr(value), value)


@given(st.text(alphabet="0123456789.,/-+eE $%\\{}()^×⁻²½−frac boxed", max_size=30))
def test_parsing_never_raises_and_canonical_texts_are_stable(text: str) -> None:
    canonical = canonical_number(text)
    assert canonical is None or canonical_number(canonical) == canonical


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("1,234", "1234.0"),
        ("$42$", r"\boxed{42}"),
        (" 42 ", 42),
        ("1/2", 0.5),
        ("50%", "50"),
        ("50%", "0.5"),
        ("0.5", "50%"),
        ("50%", "50 %"),
        ("29.00", 29),
    ],
)
def test_equal_values_are_equal_however_written(a: object, b: object) -> None:
    assert numbers_equal(a, b)


@pytest.mark.parametrize(
    ("a", "b"),
    [("unknown", "unknown"), ("", ""), (None, None), ("50%", "0.5%"), ("1", "2"), ("0.5", "50"), (True, 1)],
)
def test_other_values_and_unparsed_sides_are_not_equal(a: object, b: object) -> None:
    assert not numbers_equal(a, b)


def test_tolerances_are_the_decimals_the_caller_wrote() -> None:
    assert numbers_equal("0.3", "0.4", tolerance=0.1)
    assert not numbers_equal("0.3", "0.41", tolerance=0.1)
    assert numbers_equal("100", "101", relative=0.01)
    assert not numbers_equal("100", "102", relative=0.01)


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_a_senseless_tolerance_is_refused(bad: float) -> None:
    with pytest.raises(InputError, match="finite"):
        numbers_equal(1, 1, tolerance=bad)


def test_normalize_numeric_returns_one_text_for_the_documented_spellings() -> None:
    assert {normalize_numeric(text) for text in ("42", " 42 ", "$42$", r"\boxed{42}")} == {"42"}
    assert normalize_numeric(r"\boxed{\frac{1}{2}}") == "frac{1}{2}"


@pytest.mark.parametrize("unit", ["1,", "{", "9", " ", "\\boxed{", "$", "1 1/", "\\frac{1}{", "½"])
def test_a_megabyte_of_hostile_text_is_read_at_once(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    for read in (parse_number, lambda whole: canonical_number(whole[:1999]), normalize_numeric):
        assert cpu_seconds(lambda read=read: read(text)) < 10  # what must not happen takes hours
