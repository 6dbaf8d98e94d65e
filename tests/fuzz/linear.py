"""Texts made to be slow to read, and every reader of texts of models."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# the beginnings of what the patterns look for, again and again, so that each is tried at every place and fails late
UNITS = {
    "labels": [
        "answer is ",
        "Answer: ",
        "the final answer is not ",
        "A: ",
        "I choose ",
        "option is ",
        "wrong answer is correct ",
    ],
    "boxes": [
        "\\boxed{",
        "\\boxed{\\boxed {",
        "\\fbox{1}",
        "\\boxed ",
        "\\text{",
        "\\text {",
        "\\frac{1}{",
        "\\dfrac12",
    ],
    "formulas": ["\\[", "\\[x\\", "\\(", "\\\\[", "$", "$$", "$a", "$ a$", "\\(\n", "\\left(", "10^", "\\"],
    "brackets": ["{{{{", "{", "{ ", '{"a":', '{"answer": 1', "[", "[[1", "(((", "(A) ", "<", "<|", "</", "}", "]"],
    "numbers": [
        "9",
        "1,",
        "1,1,1,",
        "11,",
        "1 ",
        "1 234 ",
        "1.",
        "1/",
        "1e",
        "-",
        "−",
        "½",
        "１",
        "%",
        "= ",
        "1.1.",
        "0",
        "##",
        "####",
        "#### ",
    ],
    "spaces": [" ", "\n", "\t", "\r", "\r\n", " \n", "\u2028", "\x85", "\u3000"],
    "reasoning": [
        "<think>",
        "</think>",
        "<think>x</think>",
        "<answer>",
        "</answer>",
        "<answer>5</answer>",
        "<thinking",
        "```",
        "```json\n",
    ],
    "letters": [
        "A",
        "A. ",
        "\nA. x",
        "**A** ",
        "not A, ",
        "neither A nor ",
        "not the ",
        "it is not A but ",
        "'A ",
        "Paris ",
        "Q: ",
        "\nQ: 5",
    ],
    "verdicts": [
        "Score: ",
        "Score: 4 or ",
        "Verdict: not ",
        "4 out of 5 ",
        "4 / ",
        "the score is ",
        ". so my the ",
        "- ",
        '{"score":',
        "n't ",
    ],
    "unicode": ["é", "ß", "İ", "ſ", "日", "\u202e", "\u200b", "\x00", "\ud800", "👩\u200d"],
}
# a few of each that go through every reader with `make test`; all of them with `make fuzz`
FEW = ["answer is ", "\\boxed{", "\\[x\\", '{"a":', "{ ", "1,", "9", " ", "\n", "<think>", "A. ", "Score: ", "é"]
ALL = [unit for units in UNITS.values() for unit in units]


def readers() -> dict[str, Callable[[str], object]]:
    """Everything that reads what a model wrote, or a program printed."""
    from tests.fuzz.targets import CHOICES, EXTRACTORS, MATCHERS

    from kofn.core.escape import escape_controls, show_hidden
    from kofn.core.numbers import canonical_number, normalize_numeric, parse_number, plain_characters
    from kofn.extract import extract_answer, extract_letter_legacy, extract_letter_word_boundary
    from kofn.extract.answer_spans import locate
    from kofn.judge.rubric import load_rubric, parse_verdict
    from kofn.problems.matchers import matcher
    from kofn.registry import extractor

    found: dict[str, Callable[[str], object]] = {name: extractor(name) for name in EXTRACTORS}
    found |= {f"{name} of options": partial(_with_choices, extractor(name), CHOICES) for name in ("letter", "number")}
    found |= {one.__name__: one for one in (extract_answer, extract_letter_legacy, extract_letter_word_boundary)}
    found |= {one.__name__: one for one in (parse_number, canonical_number, normalize_numeric, plain_characters)}
    found |= {f"locate {answer}": partial(_located, locate, answer) for answer in ("7", "B", "yes")}
    for name in ("correctness", "helpfulness", "preference"):
        found[f"verdict {name}"] = partial(_judged, parse_verdict, load_rubric(name))
    as_json = load_rubric("helpfulness").model_copy(update={"parse": "json"})
    found["verdict json"] = partial(_judged, parse_verdict, as_json)
    expected_of = {"number": 7, "json": {"a": 1}, "hash": "0" * 64, "table": "a,b\n1,2\n"}
    for name in MATCHERS:
        found[f"matcher {name}"] = partial(_matched, matcher(name), expected_of.get(name, "a\nb"))
    return found | {"safe": escape_controls, "visible": show_hidden}


def _with_choices(read: Callable[..., object], choices: tuple[str, ...], text: str) -> object:
    return read(text, choices)


def _located(read: Callable[..., object], answer: str, text: str) -> object:
    return read(text, answer)


def _judged(read: Callable[..., object], rubric: object, text: str) -> object:
    return read(text, rubric)


def _matched(read: Callable[..., object], expected: object, text: str) -> object:
    return read(expected, text.encode("utf-8", "surrogatepass"))
