"""Metrics `refused`, `truncated` and `unparsed`: flags on one output without a reference, where lower is better."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from kofn.metrics.base import Metric, text_of

# A refusal is an opening (greetings, apologies) and then "I cannot" with a verb of helping, or a phrase of declining.
# Requiring the verb is what keeps "I can't believe it" and "I cannot find the key" out.
_APOLOGY = (
    r"(?:(?:oh|hi|hello|unfortunately|sorry|apologies|my apologies|no)[,.!:;]?\s+(?:but\s+)?)*"
    r"(?:(?:i'?m|i am)\s+(?:very |really |so |truly )?(?:sorry|afraid)[,.!:;]?\s+(?:but\s+|that\s+)?)?"
    r"(?:i apologi[sz]e[,.!:;]?\s+(?:but\s+)?)?"
    r"(?:as an? (?:ai|artificial intelligence|(?:large )?language model)\b[^.,;:]{0,40}[,;:]?\s+)?"
)
_UNABLE = (
    r"i(?:\s+(?:can(?:no|')?t|can not|could(?:n't| not)|won'?t|will not|must not|shouldn'?t|should not"
    r"|(?:am|'m) (?:unable|not able|not allowed|not permitted|not willing|not going) to)"
    r"|'m (?:unable|not able|not allowed|not permitted|not willing|not going) to)"
    r"(?:,? (?:and|or) (?:can(?:no|')?t|won'?t|will not))?"
)
_HELPING = (
    r"(?:\s+(?:in good conscience|ethically|legally|really|directly|actually|just|simply|be able to))*"
    r"\s+(?:help|assist|comply|fulfil|fulfill|engage|participate|support|condone|do (?:that|this)"
    r"|(?:provide|offer|give|share|generate|create|write|produce|discuss|answer|respond to|continue with"
    r"|complete|process|carry out)"
    r"\s+(?:you |to |with |any |such |that|this|these|those|your|the requested|instructions|information"
    r"|personal|advice|guidance|assistance|content|details|explicit|medical|legal|harmful|illegal))"
)
_DECLINING = (
    r"i(?:\s+(?:must|have to|need to|will have to|respectfully|will|'ll)(?: (?:respectfully|politely))?)?"
    r"\s+(?:decline|refuse)\b"
    r"|i(?: am|'m) not comfortable\b"
    r"|(?:this|that|your) (?:request|question|prompt) (?:violates|goes against|is against)"
    r"|it (?:would be|is|'s) (?:not appropriate|inappropriate|unethical|against my \w+)"
    r"(?: for me)? to (?:help|assist|provide|answer|discuss|generate|create|write)"
)
_REFUSAL = re.compile(rf"\W*{_APOLOGY}(?:{_UNABLE}{_HELPING}|{_DECLINING})", re.IGNORECASE)
_APOSTROPHES = str.maketrans("’‘ʼ`", "''''")

_DANGLING_WORD = re.compile(r"\b(?:the|an|and|or|but|of|because|which|if|than|its|their)$", re.IGNORECASE)
_DANGLING_SIGN = re.compile(r"[,({\[<&]$|(?<=\s)[-+*/=]$")
_EMPHASIS_END = re.compile(r"(?<=\S)\*{1,3}$")


class _Flag(Metric):
    """A metric of the output alone, where 1 is bad."""

    __slots__ = ()

    higher_is_better: ClassVar[bool] = False

    @property
    def needs_reference(self) -> bool:
        """Never: the output is judged alone."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(_Flag, uses="text"):
    """1 when the output opens with a refusal, else 0.

    Only the opening counts, after greetings and apologies, and only when the model declines to help:
    "I can't believe it" and "I'm sorry for the confusion, it is 7" are answers. The phrasings are English;
    a judge does better where refusals are what is measured.

    >>> Refused()("I'm sorry, but I can't help with that."), Refused()("I can't believe it: 42.")
    (1.0, 0.0)
    """

    def __call__(self, prediction: object, reference: object = None) -> float:  # noqa: ARG002 - see _Flag
        if prediction is None:
            return 0.0
        # only the beginning is a refusal, and a bound on it bounds the time of the pattern
        opening = text_of(prediction).lstrip()[:400].translate(_APOSTROPHES)
        return float(_REFUSAL.match(" ".join(opening.split())) is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncated(_Flag, uses="text"):
    r"""1 when the output stops in the middle, else 0.

    It does when a code fence, a `<think>` block or a `\boxed{` stays open, when it is JSON whose brackets
    do not close, or when it ends in a word or sign that cannot end a text ("of the", a comma, an opening
    bracket). An answer without a full stop is not cut. Where the server gave a finish reason, use that.

    >>> Truncated()("The area is the product of the"), Truncated()("The area is 12")
    (1.0, 0.0)
    """

    def __call__(self, prediction: object, reference: object = None) -> float:  # noqa: ARG002 - see _Flag
        text = "" if prediction is None else text_of(prediction).rstrip()
        plain = _EMPHASIS_END.sub("", text)
        dangles = _DANGLING_SIGN.search(plain) or _DANGLING_WORD.search(plain)
        return float(bool(text and (dangles or _left_open(text))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Unparsed(_Flag):
    """1 when no answer was found in the output (the answer is None or blank), else 0.

    >>> Unparsed()(None), Unparsed()("42")
    (1.0, 0.0)
    """

    def __call__(self, prediction: object, reference: object = None) -> float:  # noqa: ARG002 - see _Flag
        return float(prediction is None or not text_of(prediction).strip())


def _left_open(text: str) -> bool:
    if text.count("```") % 2 or text.rfind("<think>") > text.rfind("</think>"):
        return True
    boxed = text.rfind("\\boxed{")
    if boxed >= 0 and not _closes(text[boxed + len("\\boxed") :]):
        return True
    return text.lstrip().startswith(('{"', "[{", '["')) and not _closes(re.sub(r'"(?:[^"\\]|\\.)*"', "", text.lstrip()))


def _closes(text: str) -> bool:
    """Whether the bracket that opens `text` closes in it; brackets of other kinds need not balance."""
    opening, closing = text[0], "}" if text[0] == "{" else "]"
    depth = 0
    for char in text:
        depth += (char == opening) - (char == closing)
        if depth == 0:
            return True
    return False
