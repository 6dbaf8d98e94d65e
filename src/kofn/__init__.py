"""kofn: evaluate every output, not just the first."""

__version__ = "0.1.0"
