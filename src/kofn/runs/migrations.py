"""Reads run directories of earlier schemas as those of today, without losing anything and without writing.

Schema 1 had run.json, candidates.parquet and cases.parquet: the meaning of each column and the case reports are derived
from them. Schema 2 differs from schema 3 only in what reports.parquet and results.jsonl repeat, and is read as it is.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from kofn.core.table import CASE_COLUMNS
from kofn.errors import InputError
from kofn.metrics import trait
from kofn.registry import metric
from kofn.runs.files import CANDIDATES, CASES, MANIFEST, check_parquet, check_version, read_json, refusing_damage
from kofn.runs.manifest import check_digest, check_manifest
from kofn.runs.report_builder import report_of
from kofn.scoring.configuration import ReportConfig

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import polars as pl

    from kofn.runs.run_tables import CorrectnessResults
    from kofn.scoring.result import ScoredResult

FIRST = 1  # the schema without case reports


def load_manifest(directory: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """run.json as it is on disk, and as the present schema has it, checked."""
    path = directory / MANIFEST
    stored = read_json(path)
    if check_version(path, stored, FIRST) > FIRST:
        manifest = stored
    else:
        check_digest(path, stored)
        manifest = _from_first(path, stored)
    check_manifest(path, manifest)
    return stored, manifest


def _from_first(path: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    if "layout" in manifest:
        raise InputError(f"{path}: schema_version is 1, and its entries are of a later schema: the file was changed")
    try:
        return {**manifest, "files": {}, "layout": _first_layout(path.parent, manifest["result"])}
    except (KeyError, TypeError, AttributeError) as problem:
        raise InputError(f"{path}: not as schema 1 has it: {problem!r:.100}") from None


def _first_layout(directory: Path, result: Mapping[str, Any]) -> dict[str, Any]:
    """The layout of tables whose columns were told apart by their names."""
    cases, candidates = (_columns(directory / name) for name in (CASES, CANDIDATES))
    values = [
        {"metric": metric, "aggregator": aggregator, "column": f"{metric}.{aggregator}" if metric else aggregator}
        for metric, aggregator in dict.fromkeys((e["metric"], e["aggregator"]) for e in result["estimates"])
    ]
    known = {"case_id", *CASE_COLUMNS}
    taken = {*known, *(value["column"] for value in values)}
    metrics = [name.removeprefix("score.") for name in candidates if name.startswith("score.")] or [""]
    return {
        "case_columns": [name for name in cases if name in known],
        "tags": {name: name for name in cases if name not in taken},
        "values": values,
        "metrics": [
            {
                "metric": name,
                "source": result["understood"]["metrics"].get(name, ""),
                "beside_labels": name == "score" and "pass" in metrics,
                "higher_is_better": _is_higher_better(name),
            }
            for name in metrics
        ],
    }


def _columns(path: Path) -> Sequence[str]:
    import polars as pl

    check_parquet(path)
    with refusing_damage(path):
        return list(pl.read_parquet_schema(path))


def _is_higher_better(name: str) -> bool:
    """What a metric prefers, where it still has its name: labels, scores and users' functions prefer more."""
    try:
        return bool(trait(metric(name), "higher_is_better"))
    except InputError:
        return True


def first_reports(
    name: str, manifest: Mapping[str, Any], result: ScoredResult
) -> tuple[CorrectnessResults, pl.DataFrame]:
    """The evaluation and the case reports of a run of schema 1, as `kofn score` made them from schema 2 on."""
    sources = manifest["result"]["understood"]["sources"]
    plan = ReportConfig(
        task=PurePath(sources[0]).name.partition(".")[0] if sources else "task",
        name=name,
        threshold=manifest["options"].get("threshold"),
        timestamp=datetime.fromisoformat(manifest["created"]),
    )
    return report_of(result, plan)
