"""Stored runs sent to experiment trackers: MLflow, Weights & Biases.

In: a `kofn.runs.record.Run` and a `SinkAddress`. Out: the run at the tracker, and a line that says where it is.
Imports runs and render; the packages of the trackers are imported when a run is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.core.lazy import lazy_exports

if TYPE_CHECKING:
    from kofn.integrations.sinks.address import SinkAddress as SinkAddress
    from kofn.integrations.sinks.tracker_run import TrackerRun as TrackerRun
    from kofn.integrations.sinks.tracker_run import send_run as send_run
    from kofn.integrations.sinks.tracker_run import tracker_run_of as tracker_run_of

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "kofn.integrations.sinks.address": ("SinkAddress",),
        "kofn.integrations.sinks.tracker_run": (
            "TrackerRun",
            "send_run",
            "tracker_run_of",
        ),
    },
)
