"""What tests share: the folder of real data and oracles beside the checkout, and a browser, where there are such."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from tests.browsing import browser, visit
from tests.embedded import embedded_server

__all__ = ["browser", "embedded_server", "visit"]

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"

settings.register_profile("kofn", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("kofn")


@pytest.fixture(scope="session")
def sets_folder() -> Path:
    folder = SHARED / "data" / "sets"
    if not folder.is_dir():
        pytest.skip(f"real data is not at {folder}")
    return folder


@pytest.fixture(scope="session")
def oracles() -> dict[str, Any]:
    path = SHARED / "oracles.json"
    if not path.is_file():
        pytest.skip(f"oracles are not at {path}")
    return {entry["id"]: entry for entry in json.loads(path.read_text())}
