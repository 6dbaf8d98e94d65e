"""Provides the Vega chart library as one script, kept in the user's cache."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from kofn.core.folders import cache_folder
from kofn.runs.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path


def vega_bundle() -> str:
    """The script, which puts `vega`, `vegaLite` and `vegaEmbed` on the window.

    Making it takes two seconds, so it is kept in the user's cache. The first line of the file is a comment with the
    sha256 of the rest: a file that was cut or changed is made again. A cache that cannot be written is no error.
    """
    from importlib.metadata import version

    import vl_convert

    # the version is part of the name: an upgrade makes a new file
    path = cache_folder() / f"vega-{version('vl-convert-python')}.js"
    kept = _read_cached(path)
    if kept is not None:
        return kept
    text: str = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # its types forget the default
    _store(path, text)
    return text


def _read_cached(path: Path) -> str | None:
    """The script of a cache file; None where there is none, or it is not what was written."""
    try:
        first, _, text = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    return text.decode() if first == _checksum_line(text) else None


def _checksum_line(text: bytes) -> bytes:
    return f"// sha256 {sha256(text).hexdigest()}".encode()


def _store(path: Path, text: str) -> None:
    body = text.encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda partial: partial.write_bytes(_checksum_line(body) + b"\n" + body))
    except OSError:
        return
