"""The SHA-256 of a file, by which a manifest names weights and stored outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def file_sha256(path: Path) -> str:
    """The sha256 of a file."""
    from hashlib import file_digest

    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
