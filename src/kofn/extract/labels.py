"""Where a text says that an answer follows, in the languages models answer in, and where it runs on."""

from __future__ import annotations

import re

_LATIN = (
    r"answers?|ans|respuesta|r[ée]ponse|antwort|l[öo]sung|risposta|resposta|antwoord|odpowied[źz]|odpov[ěe][ďd]"
    r"|svar|vastaus|cevap|yan[ıi]t|jawaban|v[áa]lasz|r[ăa]spuns|ответ|відповідь|απάντηση|đáp án|câu trả lời"
)
_OTHER = (
    r"答案|答え|解答|回答|答|정답|답변|답|الجواب|الإجابة|الاجابة|إجابة|جواب|پاسخ|उत्तर|जवाब|উত্তর|คำตอบ|תשובה"
)
_MARKS = r"[\s*_`\"'”’)\]]{0,6}"
_GAP = (
    r"(?:\s{0,3}\([^()\n]{1,40}\)"
    r"|[ ](?:to|for|of|in|as|at|on|choice|option|letter|number|value|here|then|therefore|should|would|will|must|we|I"
    r"|correcta|finale?|a|à|la|de|del|der|auf|zur|alla|para|final)\b[^\n:：=.,;?!]{0,40}?)?"
)
_CONNECTOR = (
    r"(?:[:：=→]|->|\b(?:is|are|was|be|becomes|equals|comes to|es|est|ist|lautet|beträgt|sería|è|é|är|jest|adalah|là)\b"
    r"|[—–-](?=\s)|は|是|为|為|는|은|هو|هي|है)"
)

# "answer" as a label, not as a verb: a connector follows it, or a line end, or at once the answer
ANSWER_LABEL = (
    rf"(?:(?<![^\W_])(?<!each )(?<!every )(?:{_LATIN})(?![^\W_])|{_OTHER}){_MARKS}{_GAP}{_MARKS}{_CONNECTOR}"
    rf"|^[#*_> \t]{{0,8}}(?:[^\W\d]{{1,12}} ){{0,2}}(?:{_LATIN}|{_OTHER})[*_`# \t]{{0,6}}(?:$|(?=[-+−$]?\d))"
)

BOX = r"\\(?:boxed|fbox)\s{0,3}\{"

# written without lookaround and with ASCII case folding, so that the columnar path runs the same pattern
RUN_ON_PATTERN = (
    r"\n[ \t>*#]{0,8}(?:(?:new |next )?(?:question|problem|exercise)(?: ?#?[0-9]{1,4})?[ \t*]{0,4}[:.\n]"
    r"|q(?: ?[0-9]{1,4})?[:.]|human:|user:|instruction:|input:|your turn:|###[ ]?instruction)"
    r"|<\|(?:im_start|im_end|endoftext|eot_id|start_header_id|user)\|>|\[/?inst\]|</s>"
)

_RUN_ON = re.compile(RUN_ON_PATTERN, re.IGNORECASE | re.ASCII)


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
    match = re.search(r"^.*\w.*$", text[:2000], re.MULTILINE)
    return match[0].strip() if match else ""
