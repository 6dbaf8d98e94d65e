"""Stored runs sent to experiment trackers: MLflow, Weights & Biases.

In: a `kofn.runs.record.Run` and a `SinkAddress`. Out: the run at the tracker, and a line that says where it is.
Imports runs and render; the packages of the trackers are imported when a run is sent.
"""

from kofn.core.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)  # the names are in __init__.pyi
