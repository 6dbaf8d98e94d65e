"""Describes how a run's outputs were generated, from the `generation` entry of run.json."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from kofn.core.format import format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping


class Generation(BaseModel):
    """The part `generation` of run.json, as far as it is shown."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)  # newer versions may add entries

    models: dict[str, str]
    mode: str
    seed: int
    repeats: int
    stages: list[dict[str, Any]]
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost: float | None = None
    calls: int | None = None
    errors: int | None = None
    stopped: str | None = None
    adaptive: dict[str, Any] | None = None
    wall_seconds: float | None = None
    notes: dict[str, str] = {}


def generation_of(manifest: Mapping[str, Any]) -> Generation | None:
    """What run.json says of it; None for outputs that kofn did not make."""
    stored = manifest.get("generation")
    return None if stored is None else Generation.model_validate(stored)


def generation_facts(manifest: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The models, how they were asked, and what they used."""
    made = generation_of(manifest)
    if made is None:
        return []
    facts = [(role if len(made.models) > 1 else "model", name, "") for role, name in made.models.items()]
    facts += [(f"stage {s.get('name')}", str(s.get("model", "")), _sampling_text(s)) for s in made.stages]
    facts.append(("mode", made.mode, f"seed {made.seed}"))
    if made.tokens_out is not None:
        facts.append(("tokens", f"{made.tokens_in or 0:,} in, {made.tokens_out:,} out", ""))
    if made.wall_seconds and made.calls:
        facts.append(("time", format_duration(made.wall_seconds), f"of the last start, {made.calls:,} calls"))
    if made.errors:
        facts.append(("errors", f"{made.errors:,}", "calls that failed: their candidates are not graded"))
    if made.stopped:
        facts.append(("stopped", made.stopped, "the run is not whole"))
    return facts + [(name, value, "") for name, value in made.notes.items()]


def _sampling_text(stage: Mapping[str, Any]) -> str:
    stored = stage.get("sampling")
    if not isinstance(stored, dict):
        return ""
    heat = stored.get("temperature")
    parts = ["temperature default" if heat is None else f"temperature {heat:g}", f"{stored.get('max_tokens')} tokens"]
    return ", ".join(parts + ([f"top_p {stored['top_p']:g}"] if stored.get("top_p") is not None else []))
