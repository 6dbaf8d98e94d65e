"""A run sent to where a team keeps its runs: MLflow, Weights & Biases."""

from kofn.sinks.address import Address
from kofn.sinks.sending import Sending, send, sending_of

__all__ = ["Address", "Sending", "send", "sending_of"]
