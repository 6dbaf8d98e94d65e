r"""Extractor `letter`, for multiple choice: the labelled option first, else the last letter that stands alone."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from kofn.extract.answer_labels import breaks_off, first_line, labels_in, outside_reasoning, stated_before_run_on

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

DEFAULT_LABELS = ("A", "B", "C", "D", "E")
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_WORDS_FOR_LETTERS = ({"T", "F"}, {"Y", "N"}, {"T"}, {"Y"})  # true, false, yes, no
_SOME_REFERENCES = 10
_ENOUGH_REFERENCES = 50  # an option that one case in four has as its answer is missing among so many once in a million
_MAX_STRETCH = 240  # characters after a label in which the option must stand

_NEAR_END = 3  # characters from the end at which a text that has no full stop may still name its option

_LABEL_ONLY = re.compile(r"\s*[(\[]?([A-Za-z0-9])[)\].:]?\s*")
_LABEL_AND_TEXT = re.compile(r"\s*[(\[]?([A-Za-z0-9])(?:\s?[)\].:])\s*(\S.*)", re.DOTALL)

_WEAK = re.compile(
    r"(?<!each )(?<!every )(?<!answer )\b(?:option|choice|letter|one|opci[óo]n|alternativa|вариант)\b"
    r"[\s*_]{0,4}(?:[:：]|\b(?:is|es|est|ist|è|é)\b)"
    r"|\bI(?:'d|'ll|’d|’ll| would| will)?\s(?:choose|chose|select|selected|pick|picked|go with|go for)\b"
    r"|选项|選項|선택지"
    r"|\b(?:answer|ans|option|choice)(?=\s{1,2}\(?\s?[A-Za-z0-9]\s?\)?[\s.\"']{0,4}$)",
    re.IGNORECASE | re.MULTILINE,
)
# what may stand between a label and the letter it announces
_APPROACH = re.compile(
    r"(?:[\W_]|\b(?:the|therefore|thus|then|so|indeed|clearly|definitely|probably|most|likely|simply|letter|option|choice"
    r"|answer|number|opción|alternativa|la|el|die|der|das|вариант|text|textbf|mathbf|mathrm|boxed|is)\b|选项|選項|선택지|是)*",
    re.IGNORECASE,
)
_DENIAL = re.compile(
    r"[\s*_]{0,4}(?:definitely |certainly |clearly |surely )?(?:not|neither|none of|never)\b", re.IGNORECASE
)
# what denies the options that follow it ...
_DENIER = (
    r"(?:\b(?:can)?not|n['’]t|\bneither|\bnor|\bnone of|\bnever|\brather than|\binstead of)"
    r"(?:\s{1,3}(?:be|the|either|any of|think|believe|that|choose|pick|select|go with"
    r"|options?|choices?|answers?|letters?))*+\s{1,3}"
)
# ... all of them, where a conjunction ends their list
_AND = r"[ ]?(?:,[ ]?)?(?:(?:\b(?:or|nor)\b|/)[ ]?{one}|\band[ ]{one}(?![ ](?:is|was|must|fits|seems)\b))"
_DENIED_BEFORE = re.compile(rf"{_DENIER}(?:an? |in )?\Z", re.IGNORECASE)
_CLAUSE_END = re.compile(r"[*_\"'’]{0,4}\s*(?:[.,;:(!\n]|$)")
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
# what joins one option to the next: "(A) or (B)", "B, C", "A and/or D"
_ALSO = re.compile(
    r"[)\].*_$\"'’}]{0,4}\s{0,2}(?:[,/&+;]\s{0,2}(?:(?:and|or)\s)?|\b(?:and/or|and|or)\s)"
    r"(?:(?:maybe|possibly|perhaps|also|even|both|option|choice|answer)\s){0,2}[*_(\[\"'‘{$]{0,4}",
    re.IGNORECASE,
)
# options that something is said of are not chosen together: "B, and C is wrong"
_TOLD_OF = re.compile(
    r"[)\]*_}]{0,3}(?:['’]s\b|\s(?!(?:are|were) (?:both |all )?(?:correct|right|true)\b)"
    r"(?:is|are|was|were|do|does|did|would|could|can|cannot|can't|seems?|has|have|had|fails?"
    r"|isn['’]t|aren['’]t|don['’]t|doesn['’]t|both|being)\b)"
)
_NONE_OF = re.compile(r"[\W_]*(?:none|neither|not any) of\b", re.IGNORECASE)
# a labelled answer that is not an option: "(None)", or "(F)" where the options end at E
_NO_OPTION = re.compile(
    r"[\s*_]{0,4}(?:[(\[]\s?(?:[A-Z]|[Nn]one|[Nn]either|[Nn]/[Aa])\s?[)\]]|[A-Z])[*_]{0,2}\s?(?:[.;!\n]|$)"
)
# an answer taken back: "Wait, actually C", "no, it's (D)"
_CORRECTION = re.compile(
    r"\b(?:wait|hmm+|hold on|oops|sorry|correction|scratch that|on second thoughts?)\b[,.:;!?…\s—–-]{1,4}"
    r"(?:(?:no|but|so)[,.\s]{1,3}){0,2}(?:actually[,\s]{1,2})?"
    r"(?:(?:I (?:think|meant|mean)|it(?:['’]s| is| should be| must be)"
    r"|that['’]s|should be|must be)\s(?:actually\s)?){0,2}"
    r"|\bno, (?:it['’]s|it is) (?:actually )?|\bactually,?\s(?:(?:it['’]s|it is|I meant)\s)?",
    re.IGNORECASE,
)
_CONCLUSION = re.compile(r"\b(?:it|this|that) (?:is|must be|has to be|should be|leaves)\s", re.IGNORECASE)
_SEVERAL = ""  # in place of an option: the text names several, or none of them
_LATEX_TEXT = re.compile(r"\\(?:text\w*|math\w+|mbox)\s?\{([^{}]*)\}")
_RUN_TOGETHER = re.compile(r"\s*[A-Z]{2,}\s*")
_EQUATION_AFTER = re.compile(r"\s?[=+^>]|\s?<(?![/|]|[A-Za-z]\w{0,20}[ ]?/?>)|-\w")


@dataclass(frozen=True, slots=True)
class ChoiceLabels:
    """The labels of a case's options, their texts where known, and the patterns that find them.

    `pattern` finds a label that stands alone, `denied` labels that the text rules out, `text_pattern` the texts;
    `label_of` gives a text's label, None for a text that two options share.
    """

    labels: tuple[str, ...]
    texts: tuple[str, ...]
    pattern: re.Pattern[str]
    lower: bool
    denied: re.Pattern[str]
    text_pattern: re.Pattern[str] | None
    label_of: Mapping[str, str | None]


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

    The last labelled answer ("answer: C", "the answer is (C)", `<answer>C</answer>`, `\boxed{C}`; failing those
    "**C**", "I choose C", "C is correct"), else the last capital option letter that stands alone. Letters of an
    echoed option list do not count, nor denied ones ("not B"), nor the article "a", nor the pronoun "I"; a
    lower-case letter counts only if labelled, bracketed or all there is. With option texts as `choices`, an
    output that repeats one of them chooses it. Several options ("(A) or (B)", `\boxed{B, C}`) and "none of the
    above" are no single answer; a correction ("Wait, actually C") counts. Nothing in an invented next question does.

    >>> [letter(t) for t in ("The answer is not B but C.", "**Answer:** (c)", "A good one: B", "no")]
    ['C', 'C', 'B', None]
    >>> [letter(t) for t in ("So the answer is (A) or (B).", "Answer: A. Wait, actually B.")]
    [None, 'B']
    >>> letter("It must be Paris.", ["London", "Paris"])
    'B'
    """
    if text is None:
        return None
    options = parse_choices(choices)
    return stated_before_run_on(
        outside_reasoning(text), lambda part: _find_choice(part, options), lambda whole: _first_choice(whole, options)
    )


def _find_choice(text: str, options: ChoiceLabels) -> str | None:
    strong = list(_strong(text, options))
    if strong:
        start, option = strong[-1]
        leads = (_CORRECTION,) if option else (_CORRECTION, _CONCLUSION)
        return _amended(text, start, options, leads) or option or None
    loose = _unlisted(text, list(_mentions(text, options)))
    weak = _weak(text, options, loose)
    if weak:
        return weak[-1][1]
    if breaks_off(text):
        loose = [mention for mention in loose if mention.end + _NEAR_END >= len(text.rstrip())]
        return _last_alone(text, loose, options)
    return _last_alone(text, loose, options) or _by_text(text, options)


def _amended(text: str, start: int, options: ChoiceLabels, leads: Sequence[re.Pattern[str]]) -> str | None:
    """The last option after `start` that one of the patterns leads to and that ends its clause."""
    found: list[tuple[int, str]] = []
    for lead in leads:
        for match in lead.finditer(text, start):
            line = text[match.end() : match.end() + 60].split("\n", 1)[0]
            near, mentions = _APPROACH.match(line), _mentions(line, options)
            first = next((mention for mention in mentions if not mention.article), None)
            if first and near and first.start <= near.end():
                rest = line[first.end :].lstrip(")]*_.\"'’")
                if rest == "" or _CLAUSE_END.match(rest):
                    found.append((match.start(), first.label))
    return max(found, default=(0, None))[1]


def _first_choice(text: str, options: ChoiceLabels) -> int | None:
    """Where the first option stands that is labelled, in bold or said to be right."""
    weak = _weak(text, options, _unlisted(text, list(_mentions(text, options))))
    return min((start for start, _ in [*_strong(text, options), *weak]), default=None)


def labels_of_references(references: Sequence[str]) -> tuple[str, ...] | None:
    """The labels that references use: A to the last of them, and at least to E where few references say so.

    None where the references are not letters of options: T and F, Y and N, or letters none of which is A to C.

    >>> "".join(labels_of_references(["(A)", "g", "C"]) or "")
    'ABCDEFG'
    >>> "".join(labels_of_references(["A", "B"] * 30) or ""), labels_of_references(["T", "F"])
    ('AB', None)
    """
    found = {match[1].upper() for one in references if (match := _LABEL_ONLY.fullmatch(one))}
    letters = sorted(label for label in found if label.isalpha())
    if not letters or len(letters) < len(found) or set(letters) in _WORDS_FOR_LETTERS:
        return None
    if len(references) >= _SOME_REFERENCES and letters[0] > "C":
        return None
    last = letters[-1] if len(references) >= _ENOUGH_REFERENCES else max(letters[-1], DEFAULT_LABELS[-1])
    return tuple(_ALPHABET[: _ALPHABET.index(last) + 1])


def names_labelled_option(text: str) -> bool:
    """Whether a text labels one of A to E as its answer.

    >>> names_labelled_option("Answer: B"), names_labelled_option("Vitamin B")
    (True, False)
    """
    return next(_strong(outside_reasoning(text), parse_choices(None)), None) is not None


def parse_choices(choices: Sequence[str] | None) -> ChoiceLabels:
    """The options that `choices` gives: labels ("A", "(b)", "1"), labelled texts ("A) foo"), or texts (A, B, ..).

    >>> parse_choices(["1", "2"]).labels, parse_choices(["a) x", "b) y"]).labels, parse_choices(["0.5", "2"]).labels
    (('1', '2'), ('A', 'B'), ('A', 'B'))
    """
    return _parsed_choices(None if choices is None else tuple(choices))


@lru_cache(maxsize=512)
def _parsed_choices(choices: tuple[str, ...] | None) -> ChoiceLabels:
    labels, texts = (DEFAULT_LABELS, ()) if not choices else _labels_and_texts(choices)
    any_case = "".join(sorted({c for label in labels for c in (label, label.lower())}))
    lower = choices is not None and any(choice.strip("()[]. ")[:1].islower() for choice in choices) and not texts
    folded = [text.casefold().rstrip(".") for text in texts]
    label_of = {
        text: label if folded.count(text) == 1 else None for text, label in zip(folded, labels, strict=False) if text
    }
    one = rf"[*_(\[\"'‘]{{0,4}}[{any_case}](?![A-Za-z0-9])[*_)\]\"'’]{{0,4}}"
    denied = re.compile(rf"{_DENIER}{one}(?:(?:[ ]?,[ ]?{one})*+{_AND.format(one=one)}|)", re.IGNORECASE)
    # any of the texts, the longer one first, so that "New York" does not match as "York"
    any_text = "|".join(map(re.escape, sorted(label_of, key=len, reverse=True)))
    text_pattern = re.compile(rf"(?<!\w)(?:{any_text})(?!\w)", re.IGNORECASE) if any_text else None
    return ChoiceLabels(labels, texts, _alone_pattern(any_case), lower, denied, text_pattern, label_of)


def _alone_pattern(signs: str) -> re.Pattern[str]:
    """One of the signs outside words, formulas and tags; quotes and underscores may stand around it."""
    # not in a word, a LaTeX command, a decimal (1.2) or a closing tag
    before = r"(?<![A-Za-z0-9_'‘’\\-])(?<!\d[.,])(?<!</)(?P<mark>_{1,12}|['‘’])?+"
    # a quote may follow only if one stands before: 'A' is a letter, A's is not
    shut = r"(?=(?:_{1,12}+|['’])?+(?![A-Za-z0-9_'’]))"
    # nor an HTML tag of one letter: <b>
    after = rf"(?(mark){shut}|(?![A-Za-z0-9_'’]|[.,]\d))(?!(?<=<[abipqsu])[\s>])"
    return re.compile(rf"{before}(?P<sign>[{signs}]){after}")


def _labels_and_texts(choices: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    for pattern in (_LABEL_ONLY, _LABEL_AND_TEXT):
        matches = [pattern.fullmatch(choice) for choice in choices]
        labels = tuple(match[1].upper() for match in matches if match)
        # labels are A, B, .. in order, or 1, 2, ..: anything else is an answer of one character
        letters = all(map(str.isalpha, labels)) and list(labels) == sorted(set(labels))
        if len(labels) == len(choices) and (letters or list(labels) == [str(i + 1) for i in range(len(labels))]):
            texts = tuple(match[2].strip() for match in matches if match) if pattern is _LABEL_AND_TEXT else ()
            return labels, texts
    return tuple(_ALPHABET[: len(choices)]), tuple(choice.strip() for choice in choices)


def _mentions(text: str, options: ChoiceLabels) -> Iterator[Mention]:
    # letters are no mentions in denials ("neither A nor B") and in an option's text ("Vitamin A")
    texts = options.text_pattern.finditer(text) if options.text_pattern else ()
    hidden = sorted([m.span() for m in options.denied.finditer(text)] + [m.span() for m in texts if len(m[0]) > 1])
    begins, ends = [span[0] for span in hidden], list(accumulate((span[1] for span in hidden), max))
    for match in options.pattern.finditer(text):
        start, end = match.span("sign")
        sign = match["sign"]
        if (at := bisect_right(begins, start)) and ends[at - 1] > start:
            continue
        bracketed = _OPEN.search(text, max(0, start - 2), start) is not None and _SHUT.match(text, end) is not None
        capital = not sign.islower() or (options.lower and sign != "a")
        article = sign in "aAI" and _WORD_AFTER.match(text, end) is not None and not _VERB.match(text, end)
        if sign == "a" and not bracketed and re.match(r"\s+\w", text[end : end + 3]):
            article = True
        yield Mention(start, end, sign.upper(), capital, bracketed, article)


def _strong(text: str, options: ChoiceLabels) -> Iterator[tuple[int, str]]:
    """The labelled answers in order: (where, which option)."""
    for label in labels_in(text):
        stretch = text[label.end : min(label.stop, label.end + _MAX_STRETCH)]
        option = _find_announced(first_line(stretch) if label.content is None else _plain(label.content), options)
        if option is None and label.content is not None and _names_several(label.content, options):
            option = _SEVERAL
        if option is None and label.kind == "tag":
            option = _last_alone(stretch, _unlisted(stretch, list(_mentions(stretch, options))), options)
        if option is not None:
            yield label.start, option


def _plain(content: str) -> str:
    r"""What a box says without LaTeX's commands for words: "\text{old}\ barn" is "old barn"."""
    return _LATEX_TEXT.sub(r" \1 ", content).replace("\\ ", " ").replace("~", " ").strip()


def _names_several(content: str, options: ChoiceLabels) -> bool:
    """Whether a box holds several labels run together: "AC"."""
    labels = content.strip()
    return _RUN_TOGETHER.fullmatch(content) is not None and list(labels) == sorted(set(labels) & set(options.labels))


def _joined(text: str, mentions: Sequence[Mention], at: int) -> bool:
    """Whether the mention at this place is joined to a next one, and nothing is said of the last alone."""
    last = at
    while last + 1 < len(mentions):
        link = _ALSO.match(text, mentions[last].end)
        if link is None or link.end() != mentions[last + 1].start:
            break
        last += 1
    return last > at and not mentions[last].article and not _TOLD_OF.match(text, mentions[last].end)


def _find_announced(line: str, options: ChoiceLabels) -> str | None:
    """The option that a labelled line names: at once, or as a capital later in its first sentence."""
    denial, near = _DENIAL.match(line), _APPROACH.match(line)
    reach = near.end() if near and not denial else -1
    everything = list(_mentions(line, options))
    mentions = [mention for mention in everything if not mention.article]
    if mentions and mentions[0].start <= reach:
        return _SEVERAL if _joined(line, everything, everything.index(mentions[0])) else mentions[0].label
    later = next((m for m in mentions if (m.capital or m.bracketed) and not _counts(line, m)), None)
    # the option whose text is all that the first clause says
    match, immediate = options.text_pattern.search(line) if options.text_pattern else None, None
    if match and match.start() <= reach and _CLAUSE_END.match(line, match.end()):
        immediate = options.label_of.get(match[0].casefold())
    if immediate and not (later and later.bracketed):
        return immediate
    none_of = _NONE_OF.match(line) or _NO_OPTION.match(line)
    if none_of and not (later and later.bracketed):
        return _by_text(line, options) or _SEVERAL
    if later and (denial or not _SENTENCE_END.search(line, 0, later.start)):
        return _SEVERAL if _joined(line, mentions, mentions.index(later)) else later.label
    return _by_text(line, options)


def _is_denied(text: str, start: int) -> bool:
    return _DENIED_BEFORE.search(text, max(0, start - 24), start) is not None


def _counts(text: str, mention: Mention) -> bool:
    """Whether a digit counts things ("3 days") and names no option ("3 is right")."""
    after = _WORD_AFTER.match(text, mention.end)
    return mention.label.isdigit() and after is not None and not _VERB.match(text, mention.end)


def _weak(text: str, options: ChoiceLabels, mentions: list[Mention]) -> list[tuple[int, str]]:
    """Options in bold, chosen by a verb, or said to be right, in order: (where, which option)."""
    found: list[tuple[int, str]] = []
    for label in _WEAK.finditer(text):
        if _is_denied(text, label.start()):
            continue
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


def _last_alone(text: str, mentions: list[Mention], options: ChoiceLabels) -> str | None:
    for at in reversed(range(len(mentions))):
        mention = mentions[at]
        usable = mention.capital or mention.bracketed
        other = mention.article or _counts(text, mention) or _EQUATION_AFTER.match(text, mention.end)
        if usable and not other:
            several = at > 0 and not mentions[at - 1].article and _joined(text, mentions[: at + 1], at - 1)
            return None if several else mention.label
    only = text.strip(" \t\r\n.()[]*`\"'$:")
    return only.upper() if only.upper() in options.labels else None


def _by_text(text: str, options: ChoiceLabels) -> str | None:
    """The one option whose text the output repeats; None when it repeats none or several."""
    if options.text_pattern is None:
        return None
    found = options.text_pattern.finditer(text)
    mentioned = {m[0].casefold() for m in found if not _is_denied(text, m.start())}
    # two options may share words: "York" inside a mentioned "New York" is not mentioned itself
    mentioned = {one for one in mentioned if not any(one != other and one in other for other in mentioned)}
    return options.label_of.get(mentioned.pop()) if len(mentioned) == 1 else None
