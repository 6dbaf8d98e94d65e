"""Where a text says that an answer follows, in the languages models answer in, and where it runs on."""

from __future__ import annotations

import re

# each is looked up with str.find, which is far faster than a pattern of them all
WORDS = (
    "ans",
    "respuesta",
    "réponse",
    "reponse",
    "antwort",
    "lösung",
    "losung",
    "risposta",
    "resposta",
    "antwoord",
    "odpowiedź",
    "odpowiedz",
    "odpověď",
    "svar",
    "vastaus",
    "cevap",
    "yanıt",
    "yanit",
    "jawaban",
    "válasz",
    "valasz",
    "răspuns",
    "raspuns",
    "ответ",
    "відповідь",
    "απάντηση",
)
_PHRASES = ("đáp án", "câu trả lời")
# scripts that do not part words with spaces, or join them to others: found inside a run of letters too
_UNSPACED = (
    "答案",
    "答え",
    "解答",
    "回答",
    "答",
    "정답",
    "답변",
    "답",
    "الجواب",
    "الإجابة",
    "الاجابة",
    "إجابة",
    "جواب",
    "پاسخ",
    "उत्तर",
    "जवाब",
    "উত্তর",
    "คำตอบ",
    "תשובה",
)

_MARKS = r"[\s*_`\"'”’)\]]{0,6}"
_GAP = (
    r"(?:\s{0,3}\([^()\n]{1,40}\)"
    r"|[ ](?:to|for|of|in|as|at|on|choice|option|letter|number|value|here|then|therefore|should|would|will"
    r"|must|we|I|correcta|finale?|a|à|la|de|del|der|auf|zur|alla|para|final)\b[^\n:：=.,;?!]{0,40}?)?"
)
_CONNECTOR = (
    r"(?:[:：=→]|->|\b(?:is|are|was|be|becomes|equals|comes to|es|est|ist|lautet|beträgt|sería|è|é|är|jest"
    r"|adalah|là)\b|[—–-](?=\s)|は|是|为|為|는|은|هو|هي|है)"
)
# "answer" is a label, not a verb, when a connector follows it ...
_CONNECTED = re.compile(rf"{_MARKS}{_GAP}{_MARKS}{_CONNECTOR}", re.IGNORECASE)
# ... or when it is all but alone in its line, or at once before a number
_HEADING_BEFORE = re.compile(r"[#*_> \t]{0,8}(?:[^\W\d]{1,12} ){0,2}")
_HEADING_AFTER = re.compile(r"[*_`# \t]{0,6}(?:$|(?=[-+−$]?\d))", re.MULTILINE)
_WORD_TAIL = re.compile(r"(?:wers?)?(?![^\W_])", re.IGNORECASE)
_WORD = re.compile(r"\w")
_EVERY = ("each ", "every ")

BOX = r"\\(?:boxed|fbox)\s{0,3}\{"

# written without lookaround and with ASCII case folding, so that the columnar path runs the same pattern
RUN_ON_LINE = (
    r"\n[ \t>*#]{0,8}(?:(?:new |next )?(?:question|problem|exercise)(?: ?#?[0-9]{1,4})?[ \t*]{0,4}[:.\n]"
    r"|q(?: ?[0-9]{1,4})?[:.]|human:|user:|instruction:|input:|your turn:|###[ ]?instruction)"
)
_RUN_ON_MARK = r"<\|(?:im_start|im_end|endoftext|eot_id|start_header_id|user)\|>|\[/?inst\]|</s>"

_RUN_ON = re.compile(f"{RUN_ON_LINE}|{_RUN_ON_MARK}", re.IGNORECASE | re.ASCII)


def answer_labels(text: str) -> list[tuple[int, int]]:
    """Where each answer label begins and ends: "answer:", "the answer is", "Respuesta:" and their like.

    "To answer this" and "each answer choice:" are none.

    >>> answer_labels("To answer this: 3 + 4. The answer is 7")
    [(27, 36)]
    """
    low = text.lower()
    if len(low) != len(text):  # a few letters change length in lower case, and places must stay comparable
        low = "".join(c if len(c.lower()) != 1 else c.lower() for c in text)
    found: list[tuple[int, int]] = []
    for start, end in sorted(_words(text, low)):
        if found and start < found[-1][1]:
            continue
        after = _CONNECTED.match(text, end) or _heading(text, start, end)
        if after:
            found.append((start, after.end()))
    return found


def _words(text: str, low: str) -> list[tuple[int, int]]:
    places: list[tuple[int, int]] = []
    unspaced = () if text.isascii() else _UNSPACED
    for word in (*WORDS, *_PHRASES, *unspaced):
        start = low.find(word)
        while start >= 0:
            end = start + len(word)
            if word in unspaced:
                places.append((start, end))
            elif (tail := _WORD_TAIL.match(text, end)) and _begins_word(low, start):
                places.append((start, tail.end()))
            start = low.find(word, end)
    return places


def _begins_word(low: str, start: int) -> bool:
    return not low[start - 1 : start].isalnum() and not low[max(0, start - 6) : start].endswith(_EVERY)


def _heading(text: str, start: int, end: int) -> re.Match[str] | None:
    line = text.rfind("\n", max(0, start - 40), start) + 1
    if line == 0 and start > 40:
        return None
    return _HEADING_AFTER.match(text, end) if _HEADING_BEFORE.fullmatch(text, line, start) else None


def run_on(text: str, start: int) -> int:
    r"""Where, after `start`, the text runs on into an invented new question; its length when it does not.

    >>> run_on("Answer: 4\n\nQuestion: what is 3 + 3?", 9)
    10
    """
    match = _RUN_ON.search(text, start)
    return match.start() if match else len(text)


def first_line(text: str) -> str:
    r"""The first line that holds a letter or a digit, trimmed.

    >>> first_line("**\n\n  42 apples\nmore")
    '42 apples'
    """
    for line in text[:2000].split("\n"):
        if _WORD.search(line):
            return line.strip()
    return ""
