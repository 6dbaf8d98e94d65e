"""A run in MLflow: a server, a database, or a folder."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from kofn.errors import MissingExtra
from kofn.sinks.sending import batches
from kofn.values import redacted

if TYPE_CHECKING:
    from kofn.sinks.address import Address
    from kofn.sinks.sending import Sending

_METRICS, _TEXTS = 1000, 100  # of one request
# a server that is not there is noticed in seconds; whoever sets these otherwise is heard
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}


def send(address: Address, sending: Sending) -> str:
    """Send. A run is found by its digest: one that is there whole is left alone, one that was cut off is completed."""
    client = _client(address)
    experiment = _experiment(client, address.options.get("experiment", sending.task))
    called = address.options.get("experiment", sending.task)
    there = client.search_runs([experiment], f"tags.`kofn.run` = '{sending.digest}'", max_results=1)
    if there and there[0].info.status == "FINISHED":
        return f"already in {address}: run {there[0].info.run_name} of experiment {called}{_link(address, there[0])}"
    name = address.options.get("name", sending.name)
    run = there[0] if there else client.create_run(experiment, tags=_tags(sending), run_name=name)
    _log(client, run.info.run_id, sending)
    client.set_terminated(run.info.run_id)
    return f"sent to {address}: run {name} of experiment {called}, {sending.counts}{_link(address, run)}"


def _client(address: Address) -> Any:
    for name, value in _PATIENCE.items():
        os.environ.setdefault(name, value)
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    try:
        from mlflow import MlflowClient
    except ImportError:
        raise MissingExtra("mlflow-skinny", "mlflow", "--sink mlflow:") from None
    return MlflowClient(tracking_uri=address.place)


def _experiment(client: Any, name: str) -> str:
    """The experiment of this name, made where there is none; one that was deleted is taken back."""
    found = client.get_experiment_by_name(name)
    if found is None:
        return str(client.create_experiment(name))
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    return str(found.experiment_id)


def _link(address: Address, run: Any) -> str:
    """Where a browser shows it, if the address is a server's."""
    if not address.place.startswith(("http://", "https://")):
        return ""
    base = redacted(address.place).rstrip("/")
    return f"; open {base}/#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}"


def _tags(sending: Sending) -> dict[str, str]:
    """Ours, and the commit where MLflow looks for it."""
    commit = sending.tags.get("kofn.git_commit")
    own = {} if commit is None else {"mlflow.source.git.commit": commit}
    return {**sending.tags, **own, "mlflow.source.name": "kofn", "mlflow.source.type": "LOCAL"}


def _log(client: Any, run: str, sending: Sending) -> None:
    import time

    from mlflow.entities import Metric, Param

    now = int(1000 * time.time())
    for some in batches([Param(k, v) for k, v in sending.params.items()], _TEXTS):
        client.log_batch(run, params=some)
    for some in batches([Metric(k, v, now, 0) for k, v in sending.metrics.items()], _METRICS):
        client.log_batch(run, metrics=some)
    for path in sending.files:
        client.log_artifact(run, str(path))
