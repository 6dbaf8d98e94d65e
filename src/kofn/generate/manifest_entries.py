"""The `generation` entry of run.json: models, prompts, seeds, tokens, cost and what adaptive repeats saved."""

from __future__ import annotations

import time
from dataclasses import asdict
from hashlib import sha256
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from kofn.core.format import format_money
from kofn.generate.adaptive import saving
from kofn.generate.prepared_run import prices_of, repeats_of, task_digest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kofn.core.table import Table
    from kofn.generate.adaptive import Saving
    from kofn.generate.prepared_run import PreparedRun
    from kofn.generate.runner import GenerationOutcome


def generation_entry(prepared: PreparedRun, table: Table, outcome: GenerationOutcome) -> dict[str, Any]:
    """How the outputs were made: everything that is needed to make them again, and what it took."""
    generation, tally = prepared.config.generation, outcome.tally
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
        "asked": task_digest(prepared.task),
        "dataset": {
            "cases": len(prepared.items),
            "sha256": prepared.task.dataset_digest(prepared.items),
        },
        "seed": generation.seed,
        "mode": generation.mode,
        "repeats": prepared.repeats,
        "adaptive": _adaptive(prepared, table),
        "stopped": outcome.stopped,
        **_totals(table),
        "wall_seconds": round(time.monotonic() - tally.started, 3) if tally.started else 0.0,
        "calls": tally.calls,
        "reused": tally.reused,
        "retries": tally.retries,
        "notes": _notes(prepared, table),
    }


def _prompt(prepared: PreparedRun, stage: int) -> dict[str, str | None]:
    spec = prepared.task.spec.all_stages()[stage]
    text = spec.prompt or ""
    return {"template": text, "system": spec.system, "sha256": sha256(f"{spec.system}\0{text}".encode()).hexdigest()}


def _totals(table: Table) -> dict[str, Any]:
    """Sums over the candidates of the run, whenever they were made; None where nothing is known."""

    def total(name: str) -> float | None:
        return float(table.candidates[name].sum()) if name in table.candidates.columns else None

    def count(name: str) -> int | None:
        found = total(name)
        return None if found is None else round(found)

    errors = table.candidates["error"].count() if "error" in table.candidates.columns else 0
    # a failed call has no cost; any other row without one has a model whose price is not known
    unpriced = "cost" in table.candidates.columns and table.candidates["cost"].null_count() > errors
    return {
        "tokens_in": count("tokens_in"),
        "tokens_out": count("tokens"),
        "cost": None if unpriced else total("cost"),
        "errors": errors,
    }


def _adaptive(prepared: PreparedRun, table: Table) -> dict[str, Any] | None:
    """What stopping early saved."""
    if not prepared.config.generation.adaptive:
        return None
    found = adaptive_saving(prepared, table)
    return {
        "first": repeats_of(prepared).first,
        "most": prepared.repeats,
        "confidence": prepared.config.generation.confidence,
        "candidates": found.samples,
        "fixed": found.cases * found.fixed,
        **_money(prepared, table),
    }


def adaptive_saving(prepared: PreparedRun, table: Table) -> Saving:
    """The saving of an adaptive run in candidates, against as many for every case."""
    return saving(np.diff(table.offsets).tolist(), prepared.repeats)


def _money(prepared: PreparedRun, table: Table) -> dict[str, float | None]:
    """What the run cost, and about what so many candidates of every case would have.

    A prompt is paid once per request. So the fixed run pays each case's prompt once for as many samples as a request
    gives, and outputs as long as those that were drawn. Computed for one stage and known prices; else None.
    """
    rows, stage = table.candidates, prepared.recipe.stages[0]
    names = ("cost", "tokens", "tokens_in")
    if len(prepared.recipe.stages) > 1 or any(n not in rows.columns or rows[n].null_count() for n in names):
        return {"cost": None, "fixed_cost": None}
    model, most, first = prepared.models[stage.model], prepared.repeats, repeats_of(prepared).first
    price, fixed = prices_of(prepared).cost, 0.0
    for start, end in pairwise(table.offsets.tolist()):
        drawn = rows[start:end]
        prompt = drawn["tokens_in"].head(first).sum() / ceil(min(first, end - start) / model.samples)
        requests, out = ceil(most / model.samples), drawn["tokens"].mean()
        assert isinstance(out, float)
        found = price(model.name, round(prompt * requests), round(out * most))
        if found is None:
            return {"cost": None, "fixed_cost": None}
        fixed += found
    return {"cost": float(rows["cost"].sum()), "fixed_cost": fixed}


def _notes(prepared: PreparedRun, table: Table) -> dict[str, str]:
    """Notes for the summary of a run."""
    notes = {}
    if prepared.config.generation.adaptive:
        money = _money(prepared, table)
        text = str(adaptive_saving(prepared, table)).removeprefix("adaptive: ")
        spent, fixed = money["cost"], money["fixed_cost"]
        notes["adaptive"] = (
            f"{text}, {format_money(spent, 4)} instead of about {format_money(fixed, 4)}" if spent and fixed else text
        )
    if two := prepared.task.spec.two_stage:
        notes["two stages"] = "the answer is asked " + ("without" if two.markovian else "with") + " the question"
    return notes


def source_files(prepared: PreparedRun) -> Sequence[Path]:
    """The files the cases came from."""
    place = prepared.task.locate_data(prepared.config.generation.data_path)
    if place is None:
        return []
    # at most 100: each file gets a digest in run.json
    return sorted(p for p in place.rglob("*") if p.is_file())[:100] if place.is_dir() else [place]
