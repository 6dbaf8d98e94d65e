"""Rubrics: what a judge is asked and how its reply is read, from a YAML file or one of those that ship with kofn."""

from __future__ import annotations

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
_REQUIRED_FIELDS = {"score": ("output",), "pairwise": ("first", "second")}


class Rubric(Strict):
    """A rubric file.

    kind         `score`: one output at a time; `pairwise`: two, of which one is better, or neither
    prompt       text with gaps: {output} (pairwise: {first}, {second}), and {input}, {reference}, {answer}, {choices}
                 or any field of the case
    scale        `pass/fail`, or whole numbers such as `1-5`; a score is normalised to [0, 1]
    threshold    the place on the scale from which on an output passes; a scale of numbers needs one. Of several
                 verdicts the mean counts; of pass/fail an output passes by more than half
    parse        `label` (the last "Score: 4"), `json` ({"score": 4}), a regular expression with one group, or `choose`:
                 no reply is written, the verdict is the likeliest of all there are (models that give log-likelihoods)
    temperature, max_tokens   how the judge is sampled
    """

    name: str = Field(pattern=r"^[A-Za-z_][\w-]*$")
    version: int = Field(default=1, ge=1)
    description: str = ""
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
        missing = [name for name in _REQUIRED_FIELDS[self.kind] if name not in Template(self.prompt).names]
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
