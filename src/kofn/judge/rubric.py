"""Rubrics: what a judge is asked and how its reply is read, from a YAML file or one of those that ship with kofn."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from hashlib import sha256
from math import nextafter
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from kofn.core.yaml_file import Strict, Yaml, parse_model
from kofn.errors import InputError, UnknownName
from kofn.tasks.stages import Template

HERE = Path(__file__).parent / "rubrics"
PASS_FAIL = "pass/fail"  # noqa: S105 - a scale
_RANGE = re.compile(r"(-?\d+)\s*(?:-|–|to)\s*(\d+)")
REQUIRED_FIELDS = {"score": ("output",), "pairwise": ("first", "second")}


class Rubric(Strict):
    """A rubric file.

    kind         `score`: one output at a time; `pairwise`: two, of which one is better, or neither
    prompt       text with gaps: {output} (pairwise: {first}, {second}), and {input}, {reference}, {answer}, {choices}
                 or any field of the case
    scale        `pass/fail`, or whole numbers such as `1-5`; a score is normalised to [0, 1]
    threshold    the place on the scale from which on an output passes; a scale of numbers needs one. Of several
                 verdicts the mean counts; of pass/fail an output passes by more than half
    question     what people are asked who label one output: a question with yes (pass) or no (fail)
    parse        `label` (the last "Score: 4"), `json` ({"score": 4}), a regular expression with one group, or `choose`:
                 no reply is written, the verdict is the likeliest of all there are (models that give log-likelihoods)
    temperature, max_tokens   how the judge is sampled
    """

    name: str = Field(pattern=r"^[A-Za-z_][\w-]*$")
    version: int = Field(default=1, ge=1)
    description: str = ""
    question: str = Field(default="", max_length=500)
    kind: Literal["score", "pairwise"] = "score"
    system: str = ""
    prompt: str
    scale: str = PASS_FAIL
    threshold: float | None = None
    parse: str = "label"
    temperature: float | None = Field(default=0.0, ge=0, le=5)
    max_tokens: int = Field(default=256, ge=1)

    @field_validator("prompt", "system")
    @classmethod
    def _is_template(cls, text: str) -> str:
        Template(text)
        return text

    @field_validator("parse")
    @classmethod
    def _is_rule(cls, rule: str) -> str:
        if rule in ("label", "json", "choose"):
            return rule
        try:
            groups = re.compile(rule).groups
        except re.error as problem:
            raise InputError(f"expected label, json, choose or a regular expression: {problem}") from None
        if groups != 1:
            raise InputError(
                f"expected label, json, choose or a regular expression with one group, found {groups} groups"
            )
        return rule

    @model_validator(mode="after")
    def _fits(self) -> Rubric:
        missing = [name for name in REQUIRED_FIELDS[self.kind] if name not in Template(self.prompt).names]
        if missing:
            raise InputError(f"prompt: a {self.kind} rubric shows {{{missing[0]}}}, and this one does not")
        if self.kind == "pairwise":
            if self.scale != PASS_FAIL or self.threshold is not None:
                raise InputError("scale, threshold: a pairwise rubric has neither: its verdicts are A, B or tie")
            return self
        if self.scale == PASS_FAIL:
            if self.threshold is not None:
                raise InputError("threshold: pass/fail has none: give a scale such as 1-5, or leave it out")
            return self
        found = _RANGE.fullmatch(self.scale.strip())
        if found is None or int(found[1]) >= int(found[2]):
            raise InputError(f"scale: expected pass/fail or two whole numbers such as 1-5, found {self.scale!r}")
        low, high = int(found[1]), int(found[2])
        if self.threshold is None or not low < self.threshold <= high:
            raise InputError(
                f"threshold: expected the number above {low} and up to {high} from which on an output passes"
            )
        return self

    @property
    def bounds(self) -> tuple[int, int]:
        """The lowest and the highest verdict; 0 and 1 for pass/fail.

        >>> load_rubric("helpfulness").bounds, load_rubric("correctness").bounds
        ((1, 5), (0, 1))
        """
        found = _RANGE.fullmatch(self.scale.strip())
        return (0, 1) if found is None else (int(found[1]), int(found[2]))

    @property
    def verdicts(self) -> tuple[str, ...]:
        """All there are, in words.

        >>> load_rubric("helpfulness").verdicts, load_rubric("preference").verdicts
        (('1', '2', '3', '4', '5'), ('A', 'B', 'tie'))
        """
        if self.kind == "pairwise":
            return ("A", "B", "tie")
        low, high = self.bounds
        return ("pass", "fail") if self.scale == PASS_FAIL else tuple(str(n) for n in range(low, high + 1))

    @property
    def passing(self) -> float:
        """The normalised score from which on an output passes; of several verdicts pass/fail, more than half."""
        return nextafter(0.5, 1.0) if self.threshold is None else self.normalised(self.threshold)

    def normalised(self, verdict: float) -> float:
        """(verdict - lowest)/(highest - lowest).

        >>> load_rubric("helpfulness").normalised(4)
        0.75
        """
        low, high = self.bounds
        return (verdict - low) / (high - low)

    @property
    def names(self) -> tuple[str, ...]:
        """The fields its texts ask for."""
        return tuple(dict.fromkeys((*Template(self.system).names, *Template(self.prompt).names)))

    def prompt_sha256(self) -> str:
        """The hash of everything that decides what is asked and how a reply is read."""
        # stored in run.json as the identity of the judge: another order or separator would make every judge a new one
        parts = [self.kind, self.system, self.prompt, self.scale, str(self.threshold), self.parse]
        return sha256("\x00".join(parts).encode()).hexdigest()


def names() -> list[str]:
    """The rubrics that ship with kofn."""
    return sorted(path.stem for path in HERE.glob("*.yaml"))


def rubric_question(entry: Mapping[str, Any]) -> str:
    """The question of a judge in run.json; of older runs that of the shipped rubric with its name and prompt, else "".

    >>> rubric_question({"rubric": "mine", "question": "Is it polite?"}), rubric_question({"rubric": "mine"})
    ('Is it polite?', '')
    """
    if "question" in entry:
        return str(entry["question"])
    if entry.get("rubric") not in names():
        return ""
    shipped = load_rubric(str(entry["rubric"]))
    return shipped.question if entry.get("prompt_sha256") == shipped.prompt_sha256() else ""


def load_rubric(rubric: str | Path | Mapping[str, Any] | Rubric) -> Rubric:
    """A rubric by name, from a YAML file, or of a mapping with the same keys.

    >>> load_rubric("helpfullness")
    Traceback (most recent call last):
    kofn.errors.UnknownName: unknown rubric 'helpfullness': did you mean helpfulness ...?
    """
    if isinstance(rubric, Rubric):
        return rubric
    if isinstance(rubric, Mapping):
        return parse_model(Rubric, dict(rubric), str(rubric.get("name", "rubric")))
    if isinstance(rubric, Path) or rubric.endswith((".yaml", ".yml")):
        file = Yaml(Path(rubric))
        if not isinstance(file.value, dict):
            raise InputError(f"{rubric}: expected a mapping with name and prompt")
        return parse_model(Rubric, dict(file.value), str(rubric), file)
    if rubric in names():
        return load_rubric(HERE / f"{rubric}.yaml")
    raise UnknownName("rubric", rubric, names(), hint="a rubric of your own is a file that ends in .yaml")


PREFERENCES = {"a": 1.0, "b": -1.0, "tie": 0.0}
_PASS = {"pass": 1.0, "passed": 1.0, "passes": 1.0, "yes": 1.0, "correct": 1.0, "true": 1.0}
_FAIL = {"fail": 0.0, "failed": 0.0, "fails": 0.0, "no": 0.0, "incorrect": 0.0, "false": 0.0}
_PLAIN = {word: value for word, value in (_PASS | _FAIL).items() if word[:4] in ("pass", "fail", "yes", "no")}
_TIES = {"tie": 0.0, "equal": 0.0, "neither": 0.0, "both": 0.0}
_LABEL = r"(?:verdict|score|rating|grade|judge?ment|decision|final answer|preference|winner)"
_MARKS = re.compile(r"[*_`\"'#\[\](){}$]|\\boxed|\\text")
_LABELLED = re.compile(  # where a line or a sentence begins: "Confidence score: 1" is another matter
    # bounded: every blank line is a beginning, and must not lead to the end of them
    rf"(?:^|[.!?:;]\s)[\s>•-]{{0,40}}+(?:(?:so|my|the|your|final|overall)\s{{1,9}}){{0,6}}(?P<label>{_LABEL})"
    r"\s{0,40}(?P<sign>[:=]|is\b:?)\s*"
    r"(?P<value>[^\n]*)",
    re.IGNORECASE | re.MULTILINE,
)
_OBJECT = re.compile(r'\{\s*["}]')
_ASKED = re.compile(rf"\b({_LABEL})\s*:", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![\w.,-])(?P<value>-?\d+(?:\.\d+)?)(?:\s*(?:/|out of|of)\s*(?P<most>\d+))?(?![\w]|[.,]\d)")
_SEVERAL = re.compile(r"\s*(?:or|to|and|-|–|/)\s*\d", re.IGNORECASE)  # after a number: "4 or 5" is none
_WORD = re.compile(r"[a-z]+(?:-[a-z]+)?", re.IGNORECASE)
_NEGATED = re.compile(r"\b(?:not|n't|never|neither|isn't)\b", re.IGNORECASE)


def parse_verdict(reply: str, rubric: Rubric) -> float | None:
    """The verdict in a reply, on the rubric's own scale; None where there is none, or it lies outside the scale.

    `label`: the last "Score: 4" (Verdict, Rating, Grade, ...), of the label that the prompt asks for where there is
    one; else the reply must be a verdict and nothing else, or name exactly one as "4 out of 5". A pass/fail is a word,
    a preference A, B or tie.

    >>> from kofn.judge.rubric import load_rubric
    >>> stars, bar = load_rubric("helpfulness"), load_rubric("correctness")
    >>> [parse_verdict(text, stars) for text in ("Score: 4", "**Rating:** 4/5", "4.", "It is 2 out of 5.", "Score: 9")]
    [4.0, 4.0, 4.0, 2.0, None]
    >>> [parse_verdict(text, bar) for text in ("Verdict: PASS", "fail", "It is not a pass.", "Verdict: not correct")]
    [1.0, 0.0, None, None]
    """
    if rubric.parse == "json":
        return _json_verdict(reply, rubric)
    if rubric.parse not in ("label", "choose"):
        found = list(re.finditer(rubric.parse, reply))
        return _value(found[-1][1] or "", rubric) if found else None
    plain = _MARKS.sub(" ", reply)
    label_names = {_MARKS.sub(" ", label).lower() for label in _ASKED.findall(rubric.prompt)}
    # "Score: ..." announces a verdict, whatever follows; "the score is ..." only where one does
    labels = _LABELLED.finditer(plain)
    found = [m for m in labels if m["sign"] in ":=" or _value(m["value"], rubric) is not None]
    matches = [m for m in found if m["label"].lower() in label_names] or found
    return _value(matches[-1]["value"], rubric) if matches else _whole(plain.strip(), rubric)


def _json_verdict(reply: str, rubric: Rubric) -> float | None:
    """The last JSON object of the reply that holds a verdict. Failed attempts share a budget, so time is linear."""
    decoder, budget = json.JSONDecoder(), 10 * len(reply) + 100_000
    for start in reversed([m.start() for m in _OBJECT.finditer(reply)]):
        if budget <= 0:
            break
        try:
            found, _ = decoder.raw_decode(reply, start)
        except json.JSONDecodeError as error:
            # the error counts the lines before it, so its cost grows with its place in the text
            budget -= error.pos - start + error.pos // 8 + 20
            continue
        except (ValueError, RecursionError):
            budget -= len(reply) - start + 1
            continue
        value = _of_mapping(found)
        if value is not None:
            return _value(value, rubric)
        budget -= 100
    return None


def _of_mapping(found: Any) -> str | None:
    names = ("score", "verdict", "rating", "grade", "winner", "preference", "pass", "passed")
    if not isinstance(found, dict):
        return None
    lowered = {str(k).lower(): v for k, v in found.items()}
    value = next((lowered[n] for n in names if isinstance(lowered.get(n), str | int | float)), None)
    return None if value is None else str(value)


def _value(text: str, rubric: Rubric) -> float | None:
    """The verdict a piece of text begins with: `4/5`, `Pass`, `A`."""
    text = _MARKS.sub(" ", text).strip(" \t.:;,!–—")
    if rubric.kind == "pairwise":
        return _preference(text)
    if rubric.bounds == (0, 1) and rubric.threshold is None:
        return _word(text)
    match = _NUMBER.match(text)
    if match is None or _SEVERAL.match(text, match.end()):
        return None
    return _on_scale(match, rubric)


def _whole(text: str, rubric: Rubric) -> float | None:
    """The verdict of a reply without a label: all of it, or the only one it names as `N out of M`."""
    if len(_WORD.findall(text)) <= 1 and len(text) <= 12:
        return _value(text, rubric)
    if rubric.kind == "pairwise" or rubric.threshold is None:
        return None
    fractions = {m["value"]: m for m in _NUMBER.finditer(text) if m["most"] and float(m["most"]) == rubric.bounds[1]}
    return _on_scale(next(iter(fractions.values())), rubric) if len(fractions) == 1 else None


def _on_scale(match: re.Match[str], rubric: Rubric) -> float | None:
    value, (low, high) = float(match["value"]), rubric.bounds
    if match["most"] is not None and float(match["most"]) != high:
        return None
    return value if low <= value <= high else None


def _word(text: str) -> float | None:
    """Pass or fail by the first word, unless another one says the opposite or it is negated.

    >>> _word("fail, since the correct answer is 4"), _word("pass or fail"), _word("correct? No, fail"), _word("1")
    (0.0, None, None, 1.0)
    """
    words = _WORD.findall(text.lower())
    if not words:
        return {"1": 1.0, "0": 0.0}.get(text.strip(" .,"))
    value = (_PASS | _FAIL).get(words[0])
    plain = {_PLAIN[word] for word in words if word in _PLAIN}
    if _NEGATED.search(text) or len(plain) > 1 or (plain and plain != {value}):
        return None
    return value


def _preference(text: str) -> float | None:
    """A, B or a tie; "Answer A is better" counts, "A and B" does not."""
    words = [w for w in _WORD.findall(text) if w.lower() not in ("answer", "response", "output", "option", "candidate")]
    word = words[0].lower() if words else ""
    if word in _TIES:
        return 0.0
    if _NEGATED.search(text):
        return None
    others = {w for w in words[1:] if w in ("A", "B")}
    if word not in ("a", "b") or (others and word.upper() not in others) or len(others) > 1:
        return None
    return PREFERENCES[word]
