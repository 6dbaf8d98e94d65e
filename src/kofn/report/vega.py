"""The chart library that a page carries: Vega, Vega-Lite and vega-embed as one script."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path


def vega_bundle() -> str:
    """The script, which puts `vega`, `vegaLite` and `vegaEmbed` on the window.

    Making it takes two seconds, so it is kept in the user's cache (XDG_CACHE_HOME, else ~/.cache). The first line of
    the file is a comment with the sha256 of the rest: a file that was cut or changed is made again. A cache that
    cannot be written is no error.
    """
    from importlib.metadata import version

    import vl_convert

    path = _cache_folder() / f"vega-{version('vl-convert-python')}.js"
    kept = _read(path)
    if kept is not None:
        return kept
    text: str = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # its types forget the default
    _keep(path, text)
    return text


def _cache_folder() -> Path:
    """Where the script is kept. The specification of XDG has a path that is not absolute ignored."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(given) if given.startswith("/") else Path(os.environ.get("HOME", "/nonexistent")) / ".cache"
    return base / "kofn"


def _read(path: Path) -> str | None:
    """The script of a cache file; None where there is none, or it is not what was written."""
    try:
        first, _, text = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    return text.decode() if first == _seal(text) else None


def _seal(text: bytes) -> bytes:
    return f"// sha256 {sha256(text).hexdigest()}".encode()


def _keep(path: Path, text: str) -> None:
    from kofn.report.files import atomic

    body = text.encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic(path, lambda partial: partial.write_bytes(_seal(body) + b"\n" + body))
    except OSError:
        return
