"""The folder of real data and oracles beside the checkout, where there is one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
VARIABLE = "KOFN_SHARED"


def _found() -> Path:
    """What KOFN_SHARED says; else the nearest folder `shared` beside the checkout or a folder it lies in."""
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE])
    beside = [parent / "shared" for parent in ROOT.parents]
    return next((folder for folder in beside if (folder / "oracles.json").is_file()), beside[0])


SHARED = _found()
DATA = SHARED / "data"
LOGS = DATA / "logs"


def needs_shared(path: Path) -> pytest.MarkDecorator:
    """Skip, with the reason, where a file or folder of the shared folder is not there."""
    return pytest.mark.skipif(not path.exists(), reason=missing(path))


def shared_path(path: Path) -> Path:
    """The path, or a skip of the test that asks for it, with the reason."""
    if not path.exists():
        pytest.skip(missing(path))
    return path


def missing(path: Path) -> str:
    return f"real data is not at {path}: set {VARIABLE} to the folder that holds it"
