"""Where in a text an answer stands: reasoning blocks, labels in many languages, boxes, and where a text runs on."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from kofn.core.latex import tidy_latex
from kofn.core.numbers import canonical_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_REASONING_TAG = re.compile(
    r"<(?:/?(?:think|thinking|reasoning|thought)|\|(?:begin|end)_of_thought\|)>", re.IGNORECASE | re.ASCII
)
# each is looked up with str.find, which is far faster than one pattern of all of them
_SPACED_WORDS = """
ans respuesta réponse reponse antwort lösung losung risposta resposta antwoord odpowiedź odpowiedz odpověď svar
vastaus cevap yanıt yanit jawaban válasz valasz răspuns raspuns ответ відповідь απάντηση
"""
# scripts that do not separate words with spaces, or join them to others: matched inside a run of letters too
_UNSPACED_WORDS = (
    "答案 答え 解答 回答 答 정답 답변 답 الجواب الإجابة الاجابة إجابة جواب پاسخ उत्तर जवाब উত্তর คำตอบ תשובה"
)
WORDS, _UNSPACED = tuple(_SPACED_WORDS.split()), tuple(_UNSPACED_WORDS.split())
_PHRASES = ("đáp án", "câu trả lời")

_MARKS = r"[\s*_`\"'”’)\]]{0,6}"
_GAP = (
    r"(?:\s{0,3}\([^()\n]{1,40}\)"
    r"|[ ](?:to|for|of|in|as|at|on|choice|option|letter|number|value|here|then|therefore|should|would|will"
    r"|must|we|I|correcta|finale?|a|à|la|de|del|der|auf|zur|alla|para|final)\b[^\n:：=.,;?!]{0,40}?)?"
)
# "the answer is correct" judges an answer and announces none
_JUDGED = (
    r"(?!\s{1,3}(?:indeed |also |not |now |\w{2,12}ly )?"
    r"(?:correct|incorrect|right|wrong|verified|confirmed|consistent|reasonable)\b)"
)
_CONNECTOR = (
    r"(?:[:：=→]|->|\b(?:is|are|was|be|becomes|equals|comes to|es|est|ist|lautet|beträgt|sería|è|é|är|jest"
    rf"|adalah|là)\b{_JUDGED}|[—–-](?=\s)|は|是|为|為|는|은|هو|هي|है)"
)
# "answer" is a label, not a verb, when a connector follows it ...
_CONNECTED = re.compile(rf"{_MARKS}{_GAP}{_MARKS}{_CONNECTOR}", re.IGNORECASE)
# ... or when it is all but alone in its line, or at once before a number
_HEADING_BEFORE = re.compile(r"[#*_> \t]{0,8}(?:[^\W\d]{1,12} ){0,2}")
_HEADING_AFTER = re.compile(r"[*_`# \t]{0,6}(?:$|(?=[-+−$]?\d))", re.MULTILINE)
_WORD_TAIL = re.compile(r"(?:wers?)?(?![^\W_])", re.IGNORECASE)
_WORD = re.compile(r"\w")
# "each answer is", "the wrong answers are": after such words "answer" means other answers than the one given
_OTHERS = ("each ", "every ", "wrong ", "incorrect ", "other ")
_LONGEST_OTHER = max(map(len, _OTHERS))
_TAG = re.compile(r"<(?P<shut>/?)(?:final[_ -]?)?ans(?:wer)?>", re.IGNORECASE)

_SHORTEST_CUT = 300  # characters; shorter texts often lack a full stop

BOX = r"\\(?:boxed|fbox)\s{0,3}\{"

# written without lookaround and with ASCII case folding, so that the columnar path runs the same pattern
RUN_ON_LINE = (
    r"\n[ \t>*#]{0,8}(?:(?:new |next )?(?:question|problem|exercise)(?: ?#?[0-9]{1,4})?[ \t*]{0,4}[:.\n]"
    r"|q(?: ?[0-9]{1,4})?[:.]|human:|user:|instruction:|input:|your turn:|###[ ]?instruction)"
)
_RUN_ON_MARK = r"<\|(?:im_start|im_end|endoftext|eot_id|start_header_id|user)\|>|\[/?inst\]|</s>"

_RUN_ON = re.compile(f"{RUN_ON_LINE}|{_RUN_ON_MARK}", re.IGNORECASE | re.ASCII)

# a text that begins so, or is no more than such a heading, states a question and not an answer
_QUESTION = re.compile(
    r"[\s>*#]{0,12}(?:(?:(?:new |next )?(?:question|problem|exercise)(?: ?#?[0-9]{1,4})?|q(?: ?[0-9]{1,4})?"
    r"|passage|context|given|text|story|background|article|instructions?|input|options|choices|human|user)"
    r"[ \t*]{0,4}[:.\n]"
    r"|(?:example|task|step|part|section|case|test)\W{0,3}[0-9]{1,4}[^\n0-9]{0,80}\s{0,8}\Z)",
    re.IGNORECASE | re.ASCII,
)
_LEADS_ON = ("?", ":")  # a text that ends so is a question
_BRACE = re.compile(rf"(?P<box>{BOX})|\\.|[{{}}]", re.DOTALL)
# TeX allows \boxed 5 without braces, which some models write
_BARE_BOX = re.compile(r"\\boxed\s{1,3}([^\s$\\{}]{1,100})")
_UNIT_TAIL = re.compile(r"\\(?:text|mathrm|mbox)\s?\{[^{}]*\}(?:\^\{?\d\}?)?\s*$")


def outside_reasoning(text: str) -> str:
    """The text without its reasoning blocks.

    A closing tag without an opening one ends a block that began with the text (chat templates often supply
    the opening tag); an opening tag that is never closed begins a block that runs to the end.

    >>> outside_reasoning("<think>2 + 2 is 5?</think>4"), outside_reasoning("5? no</think>4")
    ('4', '4')
    >>> outside_reasoning("<think>cut off in mid-thought: 4")
    ''
    """
    return "".join(text[start:end] for start, end in visible_spans(text)) if "<" in text else text


def visible_spans(text: str) -> list[tuple[int, int]]:
    """The parts of a text that are outside its reasoning blocks."""
    if "<" not in text:
        return [(0, len(text))]
    spans: list[tuple[int, int]] = []
    start: int | None = 0
    for tag in _REASONING_TAG.finditer(text):
        closes = tag[0].startswith("</") or tag[0].lower().startswith("<|end")
        if closes and start is not None:
            spans.clear()
        if not closes and start is not None:
            spans.append((start, tag.start()))
        start = tag.end() if closes else None
    return spans if start is None else [*spans, (start, len(text))]


def strip_reasoning(text: str | None, choices: Sequence[str] | None = None) -> str | None:
    """The whole output without its reasoning blocks, trimmed; None when nothing is left.

    >>> strip_reasoning("<think>hm</think> 4 ")
    '4'
    """
    return None if text is None else outside_reasoning(text).strip() or None


class Label(NamedTuple):
    """A place that announces an answer: the answer must stand in text[end:stop], or is the box's content."""

    start: int
    end: int
    stop: int
    kind: str
    content: str | None = None


def answer_labels(text: str) -> list[tuple[int, int]]:
    """Where each answer label begins and ends: "answer:", "the answer is", "Respuesta:" and the like.

    "To answer this", "each answer choice:", "the wrong answer is" and "the answer is correct" are not labels.

    >>> answer_labels("To answer this: 3 + 4. The answer is 7")
    [(27, 36)]
    """
    low = folded(text)
    found: list[tuple[int, int]] = []
    for start, end in sorted(_words(text, low)):
        if found and start < found[-1][1]:
            continue
        after = _CONNECTED.match(text, end)
        if after is None:  # all but alone in its line, which begins at most 40 characters before?
            line = text.rfind("\n", max(0, start - 40), start) + 1
            if (line or start <= 40) and _HEADING_BEFORE.fullmatch(text, line, start):
                after = _HEADING_AFTER.match(text, end)
        if after:
            found.append((start, after.end()))
    return found


def folded(text: str) -> str:
    """In lower case, every character in its place: the few that change length stay as they are."""
    low = text.lower()
    return low if len(low) == len(text) else "".join(c if len(c.lower()) != 1 else c.lower() for c in text)


def _words(text: str, low: str) -> list[tuple[int, int]]:
    places: list[tuple[int, int]] = []
    unspaced = () if text.isascii() else _UNSPACED
    for word in (*WORDS, *_PHRASES, *unspaced):
        start = low.find(word)
        while start >= 0:
            end = start + len(word)
            if word in unspaced:
                places.append((start, end))
            elif tail := _WORD_TAIL.match(text, end):
                before = low[max(0, start - _LONGEST_OTHER) : start]
                if not before[-1:].isalnum() and not before.endswith(_OTHERS):
                    places.append((start, tail.end()))
            start = low.find(word, end)
    return places


def tagged_answers(text: str) -> list[Label]:
    """The contents of `<answer>..</answer>`; a tag that is never closed holds the rest of the text.

    >>> [(label.end, label.stop) for label in tagged_answers("<answer>5</answer> or <answer>6")]
    [(8, 9), (30, 31)]
    """
    if "<" not in text:
        return []
    found: list[Label] = []
    for tag in _TAG.finditer(text):
        if found and found[-1].stop > tag.start():
            found[-1] = found[-1]._replace(stop=tag.start())
        if not tag["shut"]:
            found.append(Label(*tag.span(), len(text), "tag"))
    return found


def in_order(labels: Iterable[Label]) -> list[Label]:
    """The labels by place, each one's stretch ending where the next label begins or the tag around it ends."""
    found = sorted(labels, key=lambda label: label[:2])
    bounds = sorted({place for label in found for place in (label.start, label.stop)})
    return [label._replace(stop=bounds[bisect_right(bounds, label.start)]) for label in found]


def labels_in(text: str, *more: Label) -> list[Label]:
    """Every label, box and tag of a text, and `more`, in order of place; see `in_order`."""
    end = len(text)
    found = [*(Label(*span, end, "word") for span in answer_labels(text)), *more]
    found += [Label(box.start, box.end, end, "box", box.content) for box in boxes(text)]
    return in_order(found + tagged_answers(text))


def stated_before_run_on(
    text: str, stated: Callable[[str], str | None], labelled: Callable[[str], int | None]
) -> str | None:
    r"""The answer of the part of a text before it runs on into an invented new question.

    `stated` gives the answer of a text, `labelled` the place of its first labelled answer. What stands before
    the new question counts if it states an answer and is no question itself; else the first labelled answer
    must come before the text runs on.
    """
    end = run_on(text, 0)
    if end == len(text):
        return stated(text)
    head = text[:end]
    is_prompt = text.startswith("[/", end)  # "[/INST]" ends a prompt
    is_prompt |= head.rstrip(" \t\r\n*_").endswith(_LEADS_ON) or _QUESTION.match(head) is not None
    if not is_prompt and (answer := stated(head)) is not None:
        return answer
    first = labelled(text)
    return stated(text if first is None else text[: run_on(text, first)])


def run_on(text: str, start: int) -> int:
    r"""Where, after `start`, the text runs on into an invented new question; its length when it does not.

    >>> run_on("Answer: 4\n\nQuestion: what is 3 + 3?", 9)
    10
    """
    match = _RUN_ON.search(text, start)
    return match.start() if match else len(text)


def breaks_off(text: str) -> bool:
    """Whether a long text ends in the middle of a sentence, as an output does that was cut at its token limit.

    >>> breaks_off("B"), breaks_off(30 * "One more word. " + "We see that option (B) is a hyper")
    (False, True)
    """
    text = text.rstrip()
    return len(text) > _SHORTEST_CUT and (text[-1].isalnum() or text[-1] in ",-")


def first_line(text: str) -> str:
    r"""The first line that holds a letter or a digit, trimmed.

    >>> first_line("**\n\n  42 apples\nmore")
    '42 apples'
    """
    for line in text[:2000].split("\n"):
        if _WORD.search(line):
            return line.strip()
    return ""


# --- extractor `boxed`: the content of the last `\boxed{..}`, with nested braces


class Box(NamedTuple):
    """One box: where it begins, where it ends, what it holds."""

    start: int
    end: int
    content: str


def boxes(text: str) -> list[Box]:
    r"""Every closed box in the order of their ends. One pass with a stack, so that deep nesting takes linear time.

    >>> [box.content for box in boxes(r"\boxed{1} then \boxed{\frac{3}{4}} and \boxed{cut")]
    ['1', '\\frac{3}{4}']
    """
    if "\\boxed" not in text and "\\fbox" not in text:
        return []
    found: list[Box] = []
    open_braces: list[tuple[int, int] | None] = []
    for token in _BRACE.finditer(text):
        if token["box"]:
            open_braces.append((token.start(), token.end()))
        elif token[0] == "{":
            open_braces.append(None)
        elif token[0] == "}" and open_braces and (box := open_braces.pop()):
            found.append(Box(box[0], token.end(), text[box[1] : token.start()]))
    return found or [Box(m.start(), m.end(), m[1]) for m in _BARE_BOX.finditer(text)]


def canonical(answer: str) -> str | None:
    r"""The canonical number where the answer is one, with or without a unit, else its tidied LaTeX.

    >>> [canonical(answer) for answer in (r"\dfrac{3}{4}", r"5\text{ cm}^2", r"x + \dfrac{1}{2}", " ")]
    ['0.75', '5', 'x+\\frac{1}{2}', None]
    """
    return canonical_number(answer) or canonical_number(_UNIT_TAIL.sub("", answer)) or tidy_latex(answer) or None


def boxed(text: str | None, choices: Sequence[str] | None = None) -> str | None:
    r"""What the last `\boxed{..}` holds: a canonical number where it is one, else tidied LaTeX.

    Reasoning blocks do not count, nor does a box in an invented next question. A box that is never closed, or
    holds nothing, is no answer.

    >>> boxed(r"so $\boxed{\frac{3}{4}}$."), boxed(r"\boxed{x^2 + 1}"), boxed("no box")
    ('0.75', 'x^2+1', None)
    """
    if text is None:
        return None
    text = outside_reasoning(text)
    found = boxes(text)
    if not found:
        return None
    end = run_on(text, found[0].end)
    return canonical([box for box in found if box.start < end][-1].content)
