"""kofn speaks idiomatic technical English: clipped phrases that once drifted in do not come back.

`PHRASES` is the list and `findings(text)` looks for them. `EXCEPTIONS` names what may stay, with the reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES += sorted((ROOT / "examples").rglob("*.md"))

# nouns that are counted: "0.004 a case", "a line a candidate", "gain a dollar"
_UNIT = (
    "answer|call|candidate|case|command|day|dollar|file|group|hour|item|job|line|minute|name|page|pair|prompt|question|reply|"
    "requirement|row|run|sample|second|segment|set|setting|test|text|token|try|verb"
)
_COUNTED = (
    "answers|bytes|calls|candidates|cases|cost|costs|dollars|executions|files|gain|graders|lines|milliseconds|minutes|"
    "money|outputs|questions|repeats|replies|requests|rows|samples|seconds|sets|texts|times|tokens|tries"
)

_LINK = r"(?:after|and|as|at|by|for|from|in|into|is|of|on|or|than|to|under|when|with)\b"
_END = r"(?! (?:of|has|is|that|needs|takes|with)\b)"  # "the gain a dollar has" is a clause


@dataclass(frozen=True)
class Phrase:
    """What is not written, and what is written instead."""

    pattern: re.Pattern[str]
    instead: str


def _phrase(pattern: str, instead: str) -> Phrase:
    return Phrase(re.compile(pattern, re.IGNORECASE), instead)


PHRASES = (
    _phrase(r"(?<!\bthere )\b(?:is|are|was|were) no (?!longer\b|more\b|less\b|one\b)[\w-]+", "is not a, has no"),
    _phrase(rf"(?<![\w-])(?!0\d{{3}} )[\d.,]*\d(?: ?%)?(?: (?!{_LINK})\w+)? an? (?:{_UNIT})\b{_END}", "per"),
    _phrase(rf"\b(?:an?|one) (?:{_UNIT}) an? (?:{_UNIT})\b", "one ... per ..."),
    _phrase(rf"\b(?:{_COUNTED}) an? (?:{_UNIT})\b{_END}", "per"),
    _phrase(r"\bnobody\b", "no ... is set, unknown"),
    _phrase(r"\bbeware\b", "Warnings"),
    _phrase(r"\b(?:says?|said) nothing\b", "does not show"),
    _phrase(r"\bknows? no\b", "does not support"),
    _phrase(r"\d(?: \w+){0,2} in all(?=[.,;:)]|$| \()", "total"),
    _phrase(r"\bwhat there is to\b|\b(?:all|whatever) there is to (?:say|see|know|name)\b", "summary of"),
    _phrase(r"\bthe same command (?:again )?(?:goes on|resumes)\b", "run the same command to resume"),
    _phrase(r"\b(?:stand|stands|stood) beside\b", "is shown next to"),
    _phrase(r"\b(?:is|are) said\b(?! to\b)", "kofn reports"),
    _phrase(r"\btime to go\b", "remaining time"),
    _phrase(r"\basks? nothing\b", "makes no request"),
    _phrase(
        r"\bno real (?:change|difference)\b|\b(?:not|difference|better) beyond chance\b", "no significant difference"
    ),
    _phrase(r"\bwhatever is (?:drawn|there|said)\b", "name it"),
    _phrase(r"\bleast gain\b", "minimum gain"),
    _phrase(r"\bas many as there are\b", "all"),
    _phrase(r"\d %", "91%, without a space"),
    _phrase(r"\bp 0?\.\d", "p = 0.03"),
)

# phrases that may stay: text of the page that holds them -> reason
EXCEPTIONS: dict[str, str] = {}

# generated from the code, whose strings have their own test
GENERATED = {"docs/architecture.md", "docs/warnings.md"}
GENERATED |= {page.relative_to(ROOT).as_posix() for page in (ROOT / "docs" / "reference").glob("*.md")}


@dataclass(frozen=True)
class Finding:
    """A forbidden phrase, the words around it, and what to write instead."""

    phrase: str
    around: str
    instead: str

    def __str__(self) -> str:
        return f"{self.phrase!r} in '...{self.around}...': write {self.instead!r}"


def findings(text: str) -> list[Finding]:
    """Every forbidden phrase of a text, in the order of the list.

    >>> [found.phrase for found in findings("'x' is no number; 0.0036 a case; nobody knows")]
    ['is no number', '0.0036 a case', 'nobody']
    >>> findings("There is no difference per case; a test names it.")
    []
    """
    flat = " ".join(text.split())
    found = []
    for phrase in PHRASES:
        for match in phrase.pattern.finditer(flat):
            around = flat[max(match.start() - 40, 0) : match.end() + 40]
            if not any(kept in around for kept in EXCEPTIONS):
                found.append(Finding(match[0], around, phrase.instead))
    return found


def prose(markdown: str) -> str:
    """A page without its code: fenced and indented blocks are left out, inline code stays as one word.

    >>> prose("Say `x y`:\\n\\n```console\\n$ nobody\\n```\\n\\ndone")
    'Say X:\\n\\n\\n\\ndone'
    """
    text = re.sub(r"^ *(```+)[^\n]*\n.*?^ *\1$", "", markdown, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"(?<=\n\n)(?: {4}[^\n]+\n?)+", "", text)
    return re.sub(r"`[^`\n]+`", "X", text)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [p for p in PAGES if name_of(p) not in GENERATED], ids=name_of)
def test_a_page_is_written_in_plain_english(page):
    paragraphs = prose(page.read_text()).split("\n\n")
    assert [str(found) for paragraph in paragraphs for found in findings(paragraph)] == []


def test_new_entries_of_the_changelog_are_written_in_plain_english():
    unreleased = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1]
    assert [str(found) for found in findings(prose(unreleased))] == []


@pytest.mark.parametrize(
    "text",
    [
        "'x' is no number",
        "0.0036 a case",
        "$0.54 in all",
        "a line a candidate",
        "gain a dollar",
        "Nobody said how outputs are used",
        "Beware",
        "it says nothing of the mean",
        "what there is to say of a run",
        "91 % of the texts",
        "at most 50 requests a\nsecond",
        "12 samples a case on average",
        "the same command goes on",
        "p 0.031",
    ],
)
def test_a_clipped_phrase_is_found(text):
    assert findings(text)


@pytest.mark.parametrize(
    "text",
    [
        "There is no case in both runs",
        "0.54 is no longer reported",
        "60 cases, one per line",
        "In all cases the 12 tests pass",
        "a test of 3 cases, of which 2 pass",
        "one repeat of a case",
        "pass@5 of a sample",
        "91% of the texts, p = 0.03",
    ],
)
def test_plain_english_passes(text):
    assert findings(text) == []
