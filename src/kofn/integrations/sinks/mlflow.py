"""Sends a run to MLflow: a server, a database, or a folder."""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Any

from kofn.core.addresses import redact_address
from kofn.errors import import_extra
from kofn.integrations.sinks.tracker_run import batches

if TYPE_CHECKING:
    from kofn.integrations.sinks.address import SinkAddress
    from kofn.integrations.sinks.tracker_run import TrackerRun

_METRICS, _TEXTS = 1000, 100  # MLflow's limits for one log_batch request
# an unreachable server fails within seconds instead of minutes, unless the user's environment sets these itself
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}


def send(address: SinkAddress, tracker_run: TrackerRun) -> str:
    """Send a run. It is found by its digest: one that is complete is left alone, one that was cut off is completed."""
    client = _client(address)
    experiment = _experiment(client, address.options.get("experiment", tracker_run.task))
    called = address.options.get("experiment", tracker_run.task)
    existing = client.search_runs([experiment], f"tags.`kofn.run` = '{tracker_run.digest}'", max_results=1)
    if existing and existing[0].info.status == "FINISHED":
        where = f"experiment {called}{_link(address, existing[0])}"
        return f"already in {address}: run {existing[0].info.run_name} of {where}"
    name = address.options.get("name", tracker_run.name)
    run = existing[0] if existing else client.create_run(experiment, tags=_tags(tracker_run), run_name=name)
    _log(client, run.info.run_id, tracker_run)
    client.set_terminated(run.info.run_id)
    return f"sent to {address}: run {name} of experiment {called}, {tracker_run.counts}{_link(address, run)}"


def _client(address: SinkAddress) -> Any:
    for name, value in _PATIENCE.items():
        os.environ.setdefault(name, value)
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    mlflow = import_extra("mlflow", "mlflow", "--sink mlflow:", package="mlflow-skinny")
    return mlflow.MlflowClient(tracking_uri=address.place)


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


def _tags(tracker_run: TrackerRun) -> dict[str, str]:
    """The run's tags, and the commit under the name that MLflow uses for it."""
    commit = tracker_run.tags.get("kofn.git_commit")
    own = {} if commit is None else {"mlflow.source.git.commit": commit}
    return {**tracker_run.tags, **own, "mlflow.source.name": "kofn", "mlflow.source.type": "LOCAL"}


def _log(client: Any, run: str, tracker_run: TrackerRun) -> None:
    from mlflow.entities import Metric, Param

    now = int(1000 * time.time())
    for some in batches([Param(k, v) for k, v in tracker_run.params.items()], _TEXTS):
        client.log_batch(run, params=some)
    for some in batches([Metric(k, v, now, 0) for k, v in tracker_run.metrics.items()], _METRICS):
        client.log_batch(run, metrics=some)
    for path in tracker_run.files:
        client.log_artifact(run, str(path))
