"""Where kofn keeps files of a user and looks for them: the cache, and folders of data sets."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Where downloads and shared replies are kept: $XDG_CACHE_HOME/kofn, else the system's folder for caches.

    Where that is not ~/.cache (macOS, Windows), ~/.cache/kofn is still used if it is there: earlier versions made it.
    """
    from platformdirs import user_cache_path

    earlier = _earlier_cache()
    if not os.environ.get("XDG_CACHE_HOME") and earlier.is_dir():
        return earlier
    try:
        return user_cache_path("kofn", appauthor=False)
    except RuntimeError:  # a user without a home, as in some containers: a folder that cannot be made keeps nothing
        return Path("/nonexistent/kofn")


def data_folders() -> list[Path]:
    """Where data sets are looked for, in order: $KOFN_DATA, ./data, and the cache."""
    named = os.environ.get("KOFN_DATA")
    places = [*([Path(named)] if named else []), Path("data"), cache_folder() / "data", _earlier_cache() / "data"]
    return list(dict.fromkeys(places))


def _earlier_cache() -> Path:
    return Path(os.path.expanduser("~/.cache/kofn"))  # noqa: PTH111 - that of pathlib raises where there is no home
