"""Stored runs sent to experiment trackers: MLflow, Weights & Biases. Their packages are imported when a run is sent."""

from __future__ import annotations

import logging
import os
import re
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from kofn.core.escape import redact_address
from kofn.errors import InputError, MissingExtra, UnknownName, WorldError, import_extra
from kofn.render.run_summary import files_of, status_of
from kofn.runs.files import MANIFEST, PAGE, digest
from kofn.runs.run_tables import EVALUATION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kofn.core.types import Estimate
    from kofn.runs.record import Run


PACKAGES = {"mlflow": "mlflow-skinny", "wandb": "wandb"}
# the variable that names the place, where the address does not, and how an address is written
_PLACES = {
    "mlflow": ("MLFLOW_TRACKING_URI", "mlflow:http://HOST:PORT"),
    "wandb": ("WANDB_PROJECT", "wandb:PROJECT"),
}
ARTIFACTS = ("report", "all", "none")
_LONGEST = 300  # characters of a package's error
_OWN = ("artifacts", "experiment", "name")
# secrets that a package may quote in its errors, and that a message must never show
_SECRETS = ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "WANDB_API_KEY", "DATABRICKS_TOKEN")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkAddress:
    """The address of one sink.

    place    for mlflow its tracking URI, for wandb ENTITY/PROJECT or PROJECT
    options  artifacts (report, all, none), experiment (mlflow), name of the run there

    >>> SinkAddress.parse("mlflow:http://me:pw@host:5000?artifacts=all&experiment=nightly")
    Address(mlflow:http://host:5000)
    >>> SinkAddress.parse("wandb:team/answers").place
    'team/answers'
    """

    kind: str
    place: str
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> SinkAddress:
        """Parse KIND:PLACE?OPTIONS; without a place the one that the environment names."""
        kind, sign, rest = text.partition(":")
        if not sign or kind not in PACKAGES:
            known = [f"{name}:" for name in PACKAGES]
            raise UnknownName("sink", f"{kind}:" if sign else text, known, f"expected mlflow:URI or {known[1]}PROJECT")
        place, options = _without_own(rest)
        variable, form = _PLACES[kind]
        if not place and not os.environ.get(variable):
            raise InputError(f"sink {kind}: says not where: write {form}, or set {variable}")
        address = cls(kind=kind, place=place or os.environ[variable], options=options)
        if (artifacts := options.get("artifacts")) is not None and artifacts not in ARTIFACTS:
            raise UnknownName("artifacts", artifacts, list(ARTIFACTS))
        if kind == "wandb" and not 0 <= place.count("/") <= 1:
            raise InputError(f"sink {address}: expected wandb:PROJECT or wandb:ENTITY/PROJECT")
        return address

    def __str__(self) -> str:
        """As messages show it: without passwords and queries."""
        return f"{self.kind}:{redact_address(self.place)}"

    def __repr__(self) -> str:
        return f"Address({self})"

    @property
    def text(self) -> str:
        """The address to write on the command line; `parse` reads it back, but for passwords."""
        own = "&".join(f"{quote(k)}={quote(v)}" for k, v in self.options.items())
        return f"{self}?{own}" if own else str(self)

    @property
    def artifacts(self) -> str:
        return self.options.get("artifacts", "report")

    def clean(self, text: str) -> str:
        """A package's error in one line, without secrets.

        >>> SinkAddress.parse("mlflow:http://me:pw@h").clean("no route to http://me:pw@h/api, tried pw")
        'no route to http://h/api, tried ***'
        """
        password = urlsplit(self.place).password if "://" in self.place else None
        text = without_credentials(" ".join(text.split()))
        for secret in filter(None, [password, unquote(password or ""), *map(os.environ.get, _SECRETS)]):
            text = text.replace(secret, "***")
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"

    def check(self) -> None:
        """Refuse a sink whose package is not installed, before any work is done."""
        if find_spec(self.kind) is None:
            raise MissingExtra(PACKAGES[self.kind], self.kind, f"--sink {self.kind}:")

    def sender(self) -> Any:
        """The function that sends a `TrackerRun` there."""
        return {"mlflow": send_to_mlflow, "wandb": send_to_wandb}[self.kind]


def without_credentials(text: str) -> str:
    """A text without the user names and passwords of the addresses in it.

    >>> without_credentials("openai:m@https://me:pw@host/v1")
    'openai:m@https://host/v1'
    """
    return re.sub(r"(?<=://)[^/@\s]*@", "", text)


def _without_own(text: str) -> tuple[str, dict[str, str]]:
    """An address and kofn's own options, taken from its query; the rest of the query is the server's.

    >>> _without_own("postgresql://h/db?sslmode=require&artifacts=all")
    ('postgresql://h/db?sslmode=require', {'artifacts': 'all'})
    """
    place, _, query = text.partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    others = "&".join(f"{quote(k)}={quote(v)}" for k, v in pairs if k not in _OWN)
    return f"{place}?{others}" if others else place, {k: v for k, v in pairs if k in _OWN}


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
    names = {"none": (), "report": (PAGE, EVALUATION, MANIFEST), "all": files_of(run)}[artifacts]
    return TrackerRun(
        name=run.name,
        task=run.task,
        digest=_digest(run.directory),
        params=params_of(run),
        metrics=metrics_of(run),
        tags=tags_of(run),
        files=tuple(run.directory / name for name in names if (run.directory / name).is_file()),
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
        why = address.clean(f"{type(problem).__name__}: {problem}")
        command = f"kofn report {run.path} --sink '{address.text}'"
        raise WorldError(f"{address}: not sent: {why}; the run is in {run.path}: {command} sends it again") from None


def _digest(path: Path) -> str:
    """The sha256 of run.json, or of evaluation.json where that is all there is."""
    manifest = path / MANIFEST
    return digest(manifest if manifest.is_file() else path / EVALUATION)


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
    manifest, status, parent = run.manifest, status_of(run), run.manifest.get("parent")
    rescored = parent if isinstance(parent, dict) else {}  # the run that this one re-scores
    found: dict[str, Any] = {
        "kofn.run": _digest(run.directory),
        "kofn.version": (manifest.get("versions") or {}).get("kofn"),
        "kofn.kind": manifest.get("kind"),
        "kofn.created": manifest.get("created"),
        "kofn.status": status.word.lower(),
        "kofn.incomplete": list(status.gaps),
        "kofn.parent": rescored.get("run_json_sha256") or rescored.get("name"),
        "kofn.git_commit": manifest.get("git_commit"),
    }
    return _texts(found)


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


_METRICS, _TEXTS = 1000, 100  # MLflow's limits for one log_batch request
# an unreachable server fails within seconds instead of minutes, unless the user's environment sets these itself
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}


def send_to_mlflow(address: SinkAddress, tracker_run: TrackerRun) -> str:
    """Send a run. It is found by its digest: one that is complete is left alone, one that was cut off is completed."""
    for name, value in _PATIENCE.items():
        os.environ.setdefault(name, value)
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    mlflow = import_extra("mlflow", "mlflow", "--sink mlflow:", package="mlflow-skinny")
    client = mlflow.MlflowClient(tracking_uri=address.place)
    called = address.options.get("experiment", tracker_run.task)
    experiment = _experiment(client, called)
    existing = client.search_runs([experiment], f"tags.`kofn.run` = '{tracker_run.digest}'", max_results=1)
    if existing and existing[0].info.status == "FINISHED":
        where = f"experiment {called}{_link(address, existing[0])}"
        return f"already in {address}: run {existing[0].info.run_name} of {where}"
    name = address.options.get("name", tracker_run.name)
    commit = tracker_run.tags.get("kofn.git_commit")
    own = {} if commit is None else {"mlflow.source.git.commit": commit}
    tags = {**tracker_run.tags, **own, "mlflow.source.name": "kofn", "mlflow.source.type": "LOCAL"}
    run = existing[0] if existing else client.create_run(experiment, tags=tags, run_name=name)
    _log(client, run.info.run_id, tracker_run)
    client.set_terminated(run.info.run_id)
    return f"sent to {address}: run {name} of experiment {called}, {tracker_run.counts}{_link(address, run)}"


def _experiment(client: Any, name: str) -> str:
    """The experiment of this name, created if it does not exist; one that was deleted is restored."""
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        return str(client.create_experiment(name))
    if experiment.lifecycle_stage == "deleted":
        client.restore_experiment(experiment.experiment_id)
    return str(experiment.experiment_id)


def _link(address: SinkAddress, run: Any) -> str:
    """The address of its page for a browser, if the sink is a server."""
    if not address.place.startswith(("http://", "https://")):
        return ""
    base = redact_address(address.place).rstrip("/")
    return f"; open {base}/#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}"


def _log(client: Any, run: str, tracker_run: TrackerRun) -> None:
    from mlflow.entities import Metric, Param

    now = int(1000 * time.time())
    for some in batches([Param(k, v) for k, v in tracker_run.params.items()], _TEXTS):
        client.log_batch(run, params=some)
    for some in batches([Metric(k, v, now, 0) for k, v in tracker_run.metrics.items()], _METRICS):
        client.log_batch(run, metrics=some)
    for path in tracker_run.files:
        client.log_artifact(run, str(path))


_ARTIFACT = 128  # characters of an artifact's name, the limit of wandb


def send_to_wandb(address: SinkAddress, tracker_run: TrackerRun) -> str:
    """Send: parameters and tags as config, metrics as the summary, files as one artifact."""
    wandb = import_extra("wandb", "wandb", "--sink wandb:")
    entity, _, project = address.place.rpartition("/")
    run = wandb.init(
        entity=entity or None,
        project=project,
        id=f"kofn-{tracker_run.digest[:24]}",  # of this digest: new or resumed
        resume="allow",
        name=address.options.get("name", tracker_run.name),
        group=tracker_run.task,
        job_type="evaluation",
        config={**tracker_run.params, **tracker_run.tags},
        # console, git state and code of this process are not captured
        settings=wandb.Settings(silent=True, console="off", disable_git=True, save_code=False),
    )
    try:
        run.summary.update(dict(tracker_run.metrics))
        if tracker_run.files:
            artifact = wandb.Artifact(f"kofn-{tracker_name(tracker_run.task)}"[:_ARTIFACT], type="evaluation")
            for path in tracker_run.files:
                artifact.add_file(str(path))
            run.log_artifact(artifact)
    except BaseException:
        run.finish(exit_code=1)
        raise
    offline, folder = run.offline, Path(run.dir).parent
    run.finish()
    where = f"kept for `wandb sync` in {folder}" if offline else f"sent to {address}"
    return f"{where}: run {run.name}, {tracker_run.counts}"
