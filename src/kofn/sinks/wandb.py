"""A run in Weights & Biases. Its id there comes from its digest, so that the same run sent again is the same run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kofn.errors import MissingExtra
from kofn.sinks.sending import plain

if TYPE_CHECKING:
    from kofn.sinks.address import Address
    from kofn.sinks.sending import Sending

_ARTIFACT = 128  # characters of an artifact's name


def send(address: Address, sending: Sending) -> str:
    """Send: parameters and tags as config, metrics as the summary, files as one artifact."""
    run = _started(address, sending)
    try:
        run.summary.update(dict(sending.metrics))
        if sending.files:
            _log_files(run, sending)
    except BaseException:
        run.finish(exit_code=1)
        raise
    offline, folder = run.offline, Path(run.dir).parent
    run.finish()
    where = f"kept for `wandb sync` in {folder}" if offline else f"sent to {address}"
    return f"{where}: run {run.name}, {sending.counts}"


def _started(address: Address, sending: Sending) -> Any:
    """The run of this digest, new or taken up again; nothing of this process is watched or saved with it."""
    try:
        import wandb
    except ImportError:
        raise MissingExtra("wandb", "wandb", "--sink wandb:") from None
    entity, _, project = address.place.rpartition("/")
    return wandb.init(
        entity=entity or None,
        project=project,
        id=f"kofn-{sending.digest[:24]}",
        resume="allow",
        name=address.options.get("name", sending.name),
        group=sending.task,
        job_type="evaluation",
        config={**sending.params, **sending.tags},
        settings=wandb.Settings(silent=True, console="off", disable_git=True, save_code=False),
    )


def _log_files(run: Any, sending: Sending) -> None:
    import wandb

    artifact = wandb.Artifact(f"kofn-{plain(sending.task)}"[:_ARTIFACT], type="evaluation")
    for path in sending.files:
        artifact.add_file(str(path))
    run.log_artifact(artifact)
