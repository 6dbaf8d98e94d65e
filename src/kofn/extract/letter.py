r"""Multiple-choice answers: the labelled option first, else the last letter that stands alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from kofn.extract.boxed import boxes
from kofn.extract.labels import answer_labels, first_line, run_on
from kofn.extract.reasoning import outside_reasoning

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DEFAULT_LABELS = ("A", "B", "C", "D", "E")
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_MAX_STRETCH = 240

_LABEL_ONLY = re.compile(r"\s*[(\[]?([A-Za-z0-9])[)\].:]?\s*")
_LABEL_AND_TEXT = re.compile(r"\s*[(\[]?([A-Za-z0-9])(?:\s?[)\].:])\s*(\S.*)", re.DOTALL)

_WEAK = re.compile(
    r"(?<!each )(?<!every )(?<!answer )\b(?:option|choice|letter|one|opci[óo]n|alternativa|вариант)\b"
    r"[\s*_]{0,4}(?:[:：]|\b(?:is|es|est|ist|è|é)\b)"
    r"|\bI(?:'d|'ll|’d|’ll| would| will)?\s(?:choose|chose|select|selected|pick|picked|go with|go for)\b"
    r"|选项|選項|선택지"
    r"|\b(?:answer|ans|option|choice)(?=\s{1,2}\(?\s?[A-Za-z]\s?\)?[\s.\"']{0,4}$)",
    re.IGNORECASE | re.MULTILINE,
)
# what may stand between a label and the letter it announces
_APPROACH = re.compile(
    r"(?:\W|\b(?:the|therefore|thus|then|so|indeed|clearly|definitely|probably|most|likely|simply|letter|option|choice"
    r"|answer|number|opción|alternativa|la|el|die|der|das|вариант|text|textbf|mathbf|mathrm|boxed|is)\b|选项|選項|선택지|是)*",
    re.IGNORECASE,
)
_DENIAL = re.compile(r"[\s*_]{0,4}(?:definitely |certainly |clearly |surely )?not\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<![(\s][A-Z])[.!?](?=\s|$)|。")
# words that follow an option letter but never an article or a pronoun
_VERB = re.compile(
    r"\s+(?:is|was|because|since|as|and|or|but|given|based|due|with|for|would|must|seems|looks|fits|makes|does|can|should"
    r"|states|says|est|ist|has|matches|describes|refers|represents|correctly|here|instead|again)\b"
)
_WORD_AFTER = re.compile(r"\s+[a-z]|[ \t]+[A-Z][a-z]")
_AFFIRMED = re.compile(
    r"[)\]*_.`]{0,4}\s(?:is|est|es|ist)\s(?:(?:clearly|definitely|therefore|thus|indeed|the|only|most|likely)\s){0,4}"
    r"(?:correct|right|best|answer|bonne|correcta|richtig)\b"
)
_LISTED_AFTER = re.compile(r"[*_]{0,2}[.):\]][*_]{0,2}[ \t]*\S")
_LISTED_BEFORE = re.compile(r"\n[ \t>*_#-]{0,8}[(\[]?\Z")
_BOLD_BEFORE = re.compile(r"\*\*\s?\(?\Z")
_BOLD_AFTER = re.compile(r"\)?[.:]?\s?\*\*")
_OPEN = re.compile(r"[(\[]\s?\Z")
_SHUT = re.compile(r"\s?[)\]]")
_EQUATION_AFTER = re.compile(r"\s?[=+^<>]|-\w")


@dataclass(frozen=True, slots=True)
class Options:
    """The labels of a case's options, their texts where known, and the pattern of one that stands alone."""

    labels: tuple[str, ...]
    texts: tuple[str, ...]
    pattern: re.Pattern[str]
    lower: bool


class Mention(NamedTuple):
    """One option letter that stands alone in a text."""

    start: int
    end: int
    label: str
    capital: bool
    bracketed: bool
    article: bool


def letter(text: str | None, choices: Sequence[str] | None = None) -> str | None:
    r"""The option an output chooses, upper case, or None.

    The last labelled answer ("answer: C", "the answer is (C)", `\boxed{C}`; failing those "**C**", "I choose
    C", "C is correct"), else the last capital option letter that stands alone. Letters of an echoed option
    list do not count, nor the article "a", nor the pronoun "I"; a lower-case letter counts only if labelled,
    bracketed or all there is. With option texts as `choices`, an output that repeats one of them chooses it.

    >>> [letter(t) for t in ("The answer is not B but C.", "**Answer:** (c)", "A good one: B", "no")]
    ['C', 'C', 'B', None]
    >>> letter("It must be Paris.", ["London", "Paris"])
    'B'
    """
    if text is None:
        return None
    options = options_of(choices)
    text = outside_reasoning(text)
    strong = list(_strong(text, options))
    if strong and run_on(text, 0) == len(text):
        return strong[-1][1]
    loose = _unlisted(text, list(_mentions(text, options)))
    weak = _weak(text, options, loose)
    if not strong and not weak:
        return _last_alone(text, loose, options) or _by_text(text, options)
    stop = run_on(text, min([*strong, *weak])[0])
    return _last_before(stop, strong) or _last_before(stop, weak)


def names_labelled_option(text: str) -> bool:
    """Whether a text labels one of A to E as its answer.

    >>> names_labelled_option("Answer: B"), names_labelled_option("Vitamin B")
    (True, False)
    """
    return next(_strong(outside_reasoning(text), options_of(None)), None) is not None


def options_of(choices: Sequence[str] | None) -> Options:
    """The options behind `choices`: labels ("A", "(b)", "1"), labelled texts ("A) foo"), or texts (A, B, ..).

    >>> options_of(["1", "2"]).labels, options_of(["a) x", "b) y"]).labels, options_of(["0.5", "2"]).labels
    (('1', '2'), ('A', 'B'), ('A', 'B'))
    """
    return _options(None if choices is None else tuple(choices))


@lru_cache(maxsize=512)
def _options(choices: tuple[str, ...] | None) -> Options:
    labels, texts = (DEFAULT_LABELS, ()) if not choices else _labels_and_texts(choices)
    any_case = "".join(sorted({c for label in labels for c in (label, label.lower())}))
    pattern = re.compile(rf"(?<![A-Za-z0-9_'’\\-])(?<!\d[.,])([{any_case}])(?![A-Za-z0-9_'’]|[.,]\d)")
    lower = choices is not None and any(choice.strip("()[]. ")[:1].islower() for choice in choices) and not texts
    return Options(labels, texts, pattern, lower)


def _labels_and_texts(choices: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    for pattern in (_LABEL_ONLY, _LABEL_AND_TEXT):
        matches = [pattern.fullmatch(choice) for choice in choices]
        labels = tuple(match[1].upper() for match in matches if match)
        if len(labels) == len(choices) and _in_sequence(labels):
            texts = tuple(match[2].strip() for match in matches if match) if pattern is _LABEL_AND_TEXT else ()
            return labels, texts
    return tuple(_ALPHABET[: len(choices)]), tuple(choice.strip() for choice in choices)


def _in_sequence(labels: tuple[str, ...]) -> bool:
    """Whether these are labels, not one-character answers: A, B, .. in order, or 1, 2, ..."""
    letters = all(label.isalpha() for label in labels) and list(labels) == sorted(set(labels))
    return letters or list(labels) == [str(i + 1) for i in range(len(labels))]


def _mentions(text: str, options: Options) -> Iterator[Mention]:
    for match in options.pattern.finditer(text):
        start, end = match.span()
        sign = match[0]
        bracketed = _OPEN.search(text, max(0, start - 2), start) is not None and _SHUT.match(text, end) is not None
        capital = sign.isupper() or (options.lower and sign != "a")
        article = sign in "aAI" and _WORD_AFTER.match(text, end) is not None and not _VERB.match(text, end)
        if sign == "a" and not bracketed and re.match(r"\s+\w", text[end : end + 3]):
            article = True
        yield Mention(start, end, sign.upper(), capital, bracketed, article)


def _strong(text: str, options: Options) -> Iterator[tuple[int, str]]:
    """The labelled answers in order: (where, which option)."""
    spans: list[tuple[int, int, str | None]] = [(*span, None) for span in answer_labels(text)]
    spans += [(box.start, box.end, box.content) for box in boxes(text)]
    spans.sort(key=lambda span: span[:2])
    stops = [*(span[0] for span in spans[1:]), len(text)]
    for (start, end, content), stop in zip(spans, stops, strict=False):
        stretch = content if content is not None else first_line(text[end : min(stop, end + _MAX_STRETCH)])
        label = _announced(stretch, options)
        if label is not None:
            yield start, label


def _announced(line: str, options: Options) -> str | None:
    """The option that a labelled line names: at once, or as a capital later in its first sentence."""
    denial = _DENIAL.match(line)
    line = line[denial.end() :] if denial else line
    mentions = list(_mentions(line, options))
    if denial:
        mentions = mentions[1:]
    near = _APPROACH.match(line)
    reach = near.end() if near and not denial else 0
    for mention in mentions:
        if mention.article:
            continue
        at_once = mention.start <= reach
        if at_once or mention.capital or mention.bracketed:
            sentence = _SENTENCE_END.search(line, 0, mention.start)
            return mention.label if at_once or not sentence or denial else _by_text(line, options)
    return _by_text(line, options)


def _weak(text: str, options: Options, mentions: list[Mention]) -> list[tuple[int, str]]:
    """Options in bold, chosen by a verb, or said to be right, in order: (where, which option)."""
    found: list[tuple[int, str]] = []
    for label in _WEAK.finditer(text):
        stretch = first_line(text[label.end() : label.end() + 40])
        announced = next((m for m in _mentions(stretch, options) if not m.article), None)
        near = _APPROACH.match(stretch)
        if announced and near and announced.start <= near.end() and not _DENIAL.match(stretch):
            found.append((label.start(), announced.label))
    for m in mentions:
        bold = _BOLD_BEFORE.search(text, max(0, m.start - 4), m.start) and _BOLD_AFTER.match(text, m.end)
        if m.capital and not m.article and (bold or _AFFIRMED.match(text, m.end)):
            found.append((m.start, m.label))
    return sorted(found)


def _unlisted(text: str, mentions: list[Mention]) -> list[Mention]:
    """The mentions that are not items of an option list: a run of two or more items in ascending order."""
    runs: list[list[int]] = []
    for at, mention in enumerate(mentions):
        if not _is_item(text, mention):
            continue
        if runs and mentions[runs[-1][-1]].label < mention.label:
            runs[-1].append(at)
        else:
            runs.append([at])
    echoed = {at for run in runs if len(run) > 1 for at in run}
    return [mention for at, mention in enumerate(mentions) if at not in echoed]


def _is_item(text: str, mention: Mention) -> bool:
    start, end = mention.start, mention.end
    if mention.bracketed and re.match(r".[ \t]+\S", text[end : end + 8]) and not _VERB.match(text, end + 1):
        return True
    before = text[start - 12 : start] if start >= 12 else "\n" + text[:start]
    return _LISTED_BEFORE.search(before) is not None and _LISTED_AFTER.match(text, end) is not None


def _last_alone(text: str, mentions: list[Mention], options: Options) -> str | None:
    for mention in reversed(mentions):
        usable = mention.capital or mention.bracketed
        if usable and not mention.article and not _EQUATION_AFTER.match(text, mention.end):
            return mention.label
    only = text.strip(" \t\r\n.()[]*`\"'$:")
    return only.upper() if only.upper() in options.labels else None


def _last_before(stop: int, found: list[tuple[int, str]]) -> str | None:
    return next((label for start, label in reversed(found) if start < stop), None)


def _by_text(text: str, options: Options) -> str | None:
    """The one option whose text the output repeats; None when it repeats none or several."""
    folded = text.casefold()
    said = [
        (label, option.casefold().rstrip("."))
        for label, option in zip(options.labels, options.texts, strict=False)
        if option and re.search(rf"(?<!\w){re.escape(option.casefold().rstrip('.'))}(?!\w)", folded)
    ]
    # "New York" also says "York": a text inside a longer one that is said does not count
    said = [(label, one) for label, one in said if not any(one != other and one in other for _, other in said)]
    return said[0][0] if len(said) == 1 else None
