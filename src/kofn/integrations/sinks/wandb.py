"""Sends a run to Weights & Biases. Its id there is made from its digest, so a run sent again is the same run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kofn.errors import import_extra
from kofn.integrations.sinks.tracker_run import tracker_name

if TYPE_CHECKING:
    from kofn.integrations.sinks.address import SinkAddress
    from kofn.integrations.sinks.tracker_run import TrackerRun

_ARTIFACT = 128  # characters of an artifact's name, the limit of wandb


def send(address: SinkAddress, tracker_run: TrackerRun) -> str:
    """Send: parameters and tags as config, metrics as the summary, files as one artifact."""
    run = _start(address, tracker_run)
    try:
        run.summary.update(dict(tracker_run.metrics))
        if tracker_run.files:
            _log_files(run, tracker_run)
    except BaseException:
        run.finish(exit_code=1)
        raise
    offline, folder = run.offline, Path(run.dir).parent
    run.finish()
    where = f"kept for `wandb sync` in {folder}" if offline else f"sent to {address}"
    return f"{where}: run {run.name}, {tracker_run.counts}"


def _start(address: SinkAddress, tracker_run: TrackerRun) -> Any:
    """The run of this digest, new or resumed; console, git state and code of this process are not captured."""
    wandb = import_extra("wandb", "wandb", "--sink wandb:")
    entity, _, project = address.place.rpartition("/")
    return wandb.init(
        entity=entity or None,
        project=project,
        id=f"kofn-{tracker_run.digest[:24]}",
        resume="allow",
        name=address.options.get("name", tracker_run.name),
        group=tracker_run.task,
        job_type="evaluation",
        config={**tracker_run.params, **tracker_run.tags},
        settings=wandb.Settings(silent=True, console="off", disable_git=True, save_code=False),
    )


def _log_files(run: Any, tracker_run: TrackerRun) -> None:
    import wandb

    artifact = wandb.Artifact(f"kofn-{tracker_name(tracker_run.task)}"[:_ARTIFACT], type="evaluation")
    for path in tracker_run.files:
        artifact.add_file(str(path))
    run.log_artifact(artifact)
