"""What run.json says of how the outputs were made."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kofn.running.asking import repeats_of
from kofn.running.prepare import asked, data_path, mode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kofn.generate.adaptive import Saving
    from kofn.generate.runner import Outcome
    from kofn.running.prepare import Prepared
    from kofn.table import Table


def generation_of(prepared: Prepared, table: Table, outcome: Outcome) -> dict[str, Any]:
    """How the outputs were made: everything that is needed to make them again, and what it took."""
    settings, tally = prepared.settings, outcome.tally
    return {
        "models": {role: model.name for role, model in prepared.models.items()},
        "described": {role: model.describe() for role, model in prepared.models.items()},
        "chat": dict(prepared.chat),
        "stages": [
            {
                "name": s.name,
                "model": s.model,
                "kind": s.kind,
                "sampling": asdict(s.sampling),
                "prompt": _prompt(prepared, i),
            }
            for i, s in enumerate(prepared.recipe.stages)
        ],
        "asked": asked(prepared.task),
        "dataset": {
            "cases": len(prepared.items),
            "sha256": prepared.task.dataset_digest(prepared.items),
        },
        "seed": settings.seed,
        "mode": mode(settings),
        "repeats": prepared.repeats,
        "adaptive": _adaptive(prepared, table),
        "stopped": outcome.stopped,
        **_totals(table),
        "calls": tally.calls,
        "reused": tally.reused,
        "retries": tally.retries,
        "notes": _notes(prepared, table),
    }


def _prompt(prepared: Prepared, stage: int) -> dict[str, str | None]:
    from hashlib import sha256

    spec = prepared.task.spec.all_stages()[stage]
    text = spec.prompt or ""
    return {"template": text, "system": spec.system, "sha256": sha256(f"{spec.system}\0{text}".encode()).hexdigest()}


def _totals(table: Table) -> dict[str, Any]:
    """Over the candidates of the run, whenever they were made; none where nothing is known."""

    def total(name: str) -> float | None:
        return float(table.candidates[name].sum()) if name in table.candidates.columns else None

    def count(name: str) -> int | None:
        found = total(name)
        return None if found is None else round(found)

    errors = table.candidates["error"].count() if "error" in table.candidates.columns else 0
    return {
        "tokens_in": count("tokens_in"),
        "tokens_out": count("tokens"),
        "cost": total("cost"),
        "errors": errors,
    }


def _adaptive(prepared: Prepared, table: Table) -> dict[str, Any] | None:
    """What stopping early saved."""
    if not prepared.settings.adaptive:
        return None
    found = saved(prepared, table)
    return {
        "first": repeats_of(prepared).first,
        "most": prepared.repeats,
        "confidence": prepared.settings.confidence,
        "candidates": found.samples,
        "fixed": found.cases * found.fixed,
        "cost": found.cost,
        "fixed_cost": found.fixed_cost,
    }


def saved(prepared: Prepared, table: Table) -> Saving:
    """The saving of an adaptive run against as many candidates for every case."""
    from itertools import pairwise

    import numpy as np

    from kofn.generate.adaptive import saving

    costs = None
    if "cost" in table.candidates.columns:
        of = table.candidates["cost"].to_list()
        bounds = table.offsets.tolist()
        costs = [of[a:b] for a, b in pairwise(bounds)]
    return saving(np.diff(table.offsets).tolist(), prepared.repeats, costs)


def _notes(prepared: Prepared, table: Table) -> dict[str, str]:
    """Lines for people."""
    notes = {}
    if prepared.settings.adaptive:
        notes["adaptive"] = str(saved(prepared, table)).removeprefix("adaptive: ")
    if two := prepared.task.spec.two_stage:
        notes["two stages"] = "the answer is asked " + ("without" if two.markovian else "with") + " the question"
    return notes


def sources_of(prepared: Prepared) -> Sequence[Path]:
    """The files the cases came from."""
    place = prepared.task.located(data_path(prepared.settings))
    if place is None:
        return []
    return sorted(p for p in place.rglob("*") if p.is_file())[:100] if place.is_dir() else [place]
