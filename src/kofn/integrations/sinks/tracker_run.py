"""A run as trackers store it: parameters, metrics, tags and files, under names that MLflow and wandb accept."""

from __future__ import annotations

import re
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError, WorldError
from kofn.integrations.sinks.address import without_credentials
from kofn.render.run_summary import files_of, status_of
from kofn.runs.evaluation_files import EVALUATION
from kofn.runs.files import MANIFEST, PAGE, digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from kofn.core.types import Estimate
    from kofn.integrations.sinks.address import SinkAddress
    from kofn.runs.record import Run

LONGEST = 500  # characters of a parameter or a tag
_NAME = 200  # characters of a name: below MLflow's limit of 250
_PARTS = ("low", "high", "n")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerRun:
    """A run as trackers store it. `digest` identifies it, so that the same run is never stored twice."""

    name: str
    task: str
    digest: str
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]
    files: tuple[Path, ...]

    @property
    def counts(self) -> str:
        """The number of metrics and parameters, and the files."""
        files = ", ".join(path.name for path in self.files) or "no files"
        return f"{len(self.metrics)} metrics, {len(self.params)} parameters, {files}"


def tracker_run_of(run: Run, artifacts: str = "report") -> TrackerRun:
    """The content to send. `artifacts`: "report" (the page and the two JSON files), "all" or "none"."""
    if run.path is None:
        raise InputError(f"run {run.name} is not on disk: only a run directory is sent")
    return TrackerRun(
        name=run.name,
        task=run.task,
        digest=_digest(run.directory),
        params=params_of(run),
        metrics=metrics_of(run),
        tags=tags_of(run),
        files=_files(run, artifacts),
    )


def send_run(run: Run, address: SinkAddress) -> str:
    """Send a run, and say where it is. A failure leaves the run as it is; the error says how to send it again."""
    content = tracker_run_of(run, address.artifacts)
    output = StringIO()  # what a package prints may hold the password of its server
    try:
        with redirect_stdout(output), redirect_stderr(output):
            return str(address.sender()(address, content))
    except (InputError, KeyboardInterrupt):
        raise
    except Exception as problem:  # the packages raise what they like, and so does the network below them
        kind = type(problem).__name__
        why = address.clean(f"{kind}: {problem}")
        command = f"kofn report {run.path} --sink '{address.text}'"
        raise WorldError(f"{address}: not sent: {why}; the run is in {run.path}: {command} sends it again") from None


def _digest(path: Path) -> str:
    """The sha256 of run.json, or of evaluation.json where that is all there is."""
    manifest = path / MANIFEST
    return digest(manifest if manifest.is_file() else path / EVALUATION)


def _files(run: Run, artifacts: str) -> tuple[Path, ...]:
    names = {"none": (), "report": (PAGE, EVALUATION, MANIFEST), "all": files_of(run)}[artifacts]
    return tuple(run.directory / name for name in names if (run.directory / name).is_file())


# metrics


def metrics_of(run: Run) -> dict[str, float]:
    """Every estimate (point, low, high, n), the report's score and pass rate, cost and time."""
    evaluation, result = run.evaluation, run.result
    total = sum(evaluation.total_counts.values())
    found: dict[str, float | None] = {
        "pass_rate": sum(evaluation.pass_counts.values()) / total if total else None,
        "score": evaluation.score(),
        "cases": float(total),
    }
    if result is not None:
        spent = result.diagnostics
        found |= {"candidates": float(result.n_candidates), "missing": float(result.n_missing)}
        found |= {name: spent[name]["total"] for name in ("cost", "seconds") if spent.get(name)}
        found |= _estimate_metrics(result.estimates)
    return {name: float(value) for name, value in found.items() if value is not None}


def _estimate_metrics(estimates: Iterable[Estimate]) -> dict[str, float | None]:
    """
    >>> from kofn.core.types import Estimate
    >>> e = Estimate(aggregator="pass@5", metric="pass", point=.5, low=.4, high=.6, level=.95, n=9, n_missing=0,
    ...              method="bca")
    >>> _estimate_metrics([e])
    {'pass.pass_at_5': 0.5, 'pass.pass_at_5.low': 0.4, 'pass.pass_at_5.high': 0.6, 'pass.pass_at_5.n': 9}
    """
    found: dict[str, float | None] = {}
    for e in estimates:
        segment = [] if e.segment is None else list(e.segment.partition("=")[::2])
        name = _unused_name(".".join(map(tracker_name, filter(None, [e.metric, e.aggregator, *segment]))), found)
        found[name] = e.point
        found |= {f"{name}.{part}": getattr(e, part) for part in _PARTS}
    return found


def tracker_name(name: str) -> str:
    """A name of letters, digits, `_`, `-` and `.` alone.

    >>> [tracker_name(name) for name in ("pass@5", "pass^3", "ndcg(k=3)", "São Paulo (BR)", "?")]
    ['pass_at_5', 'pass_hat_3', 'ndcg_k_3', 'São_Paulo_BR', '_']
    """
    words = name.replace("@", "_at_").replace("^", "_hat_")
    return re.sub(r"_*[^\w.-]+_*", "_", words).strip("_")[:_NAME] or "_"


def _unused_name(name: str, taken: Mapping[str, object]) -> str:
    """The name, with a number where another has it: two segments may differ in signs alone."""
    unused, n = name, 1
    while unused in taken:
        n += 1
        unused = f"{name}_{n}"
    return unused


# parameters and tags


def params_of(run: Run) -> dict[str, str]:
    """What was evaluated and how: everything in which two runs may differ."""
    manifest, result = run.manifest, run.result
    made = manifest.get("generation") or {}
    found: dict[str, Any] = {"task": run.task, "verdict": run.evaluation.verdict, "policy": run.evaluation.policy}
    found |= {name if len(made["models"]) > 1 else "model": m for name, m in (made.get("models") or {}).items()}
    found |= {name: made.get(name) for name in ("mode", "repeats", "seed")}
    for stage in made.get("stages") or ():
        sampling = stage.get("sampling") or {}
        found |= {f"{stage.get('name')}.{key}": value for key, value in sampling.items()}
    if result is not None:
        found["extractor"] = result.extraction.get("extractor")
        found |= {f"origin.{key}": value for key, value in (result.understood.get("origin") or {}).items()}
        found |= {f"judge.{name}": ", ".join(entry["models"]) for name, entry in result.judges.items()}
    found |= {k: v for k, v in (manifest.get("options") or {}).items() if found.get(k) is None}
    found["sources"] = [source["path"] for source in manifest.get("sources") or ()]
    return _texts(found)


def tags_of(run: Run) -> dict[str, str]:
    """Identity and state of a run, to search by."""
    manifest, status = run.manifest, status_of(run)
    commit = manifest.get("git_commit")
    found: dict[str, Any] = {
        "kofn.run": _digest(run.directory),
        "kofn.version": (manifest.get("versions") or {}).get("kofn"),
        "kofn.kind": manifest.get("kind"),
        "kofn.created": manifest.get("created"),
        "kofn.status": status.word.lower(),
        "kofn.incomplete": list(status.gaps),
        "kofn.parent": _parent(manifest.get("parent")),
        "kofn.git_commit": commit,
    }
    return _texts(found)


def _parent(entry: Any) -> str | None:
    """The run that this one re-scores."""
    if not isinstance(entry, dict):
        return None
    return str(entry.get("run_json_sha256") or entry.get("name") or "") or None


def _texts(found: Mapping[str, Any]) -> dict[str, str]:
    """Values as text, without empty ones; keys by `tracker_name`."""
    out: dict[str, str] = {}
    for key, value in found.items():
        text = without_credentials(", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value))
        if value is not None and text:
            out[_unused_name(tracker_name(key), out)] = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    return out


def batches(pairs: Sequence[Any], size: int) -> list[Sequence[Any]]:
    """In pieces of at most `size`.

    >>> batches([1, 2, 3], 2)
    [[1, 2], [3]]
    """
    return [pairs[i : i + size] for i in range(0, len(pairs), size)]
