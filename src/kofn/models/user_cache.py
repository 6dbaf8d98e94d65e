"""The folder in the user's cache where kofn keeps downloads and shared replies."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/kofn, else ~/.cache/kofn."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "kofn"
