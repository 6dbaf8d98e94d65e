"""How judges are asked: models, repeats, temperature, limits, cache."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kofn.generate.limits import Limits
from kofn.judge.rubric import load_rubric
from kofn.models.base import Sampling

if TYPE_CHECKING:
    from pathlib import Path

    from kofn.judge.rubric import Rubric
    from kofn.judge.verdict_scores import Panel


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """How judges are asked. None is the rubric's, or the model's own."""

    models: tuple[Any, ...]
    repeats: int = 1
    panel: Panel = "mean"
    name: str | None = None
    choose: bool = False
    replace: bool = False
    temperature: float | None = None
    max_tokens: int | None = None
    limits: Limits = field(default_factory=Limits)
    seed: int = 0
    prices: Path | None = None
    cache: bool = False
    retry_errors: bool = False
    progress: bool = False

    def rubric(self, name_or_file: Any) -> Rubric:
        """The rubric, with the likeliest verdict instead of a reply where that was asked for."""
        rubric = load_rubric(name_or_file)
        return rubric.model_copy(update={"parse": "choose"}) if self.choose else rubric

    def sampling(self, rubric: Rubric) -> Sampling:
        """How a verdict is drawn."""
        heat = rubric.temperature if self.temperature is None else self.temperature
        return Sampling(temperature=heat, max_tokens=self.max_tokens or rubric.max_tokens)
