"""What tests share: the folder of real data and oracles beside the checkout, and a browser, where there are such."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from tests.browsing import browser, visit
from tests.embedded import embedded_server
from tests.shared import DATA, SHARED, shared_path
from tests.suites import FIXTURES, KINDS, LARGE

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["browser", "embedded_server", "visit"]


settings.register_profile("kofn", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("kofn")


@pytest.hookimpl(tryfirst=True)  # before markers select
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as `large` what `make test` leaves out: tests of a kind, beyond those that the kind's marker keeps.

    `@pytest.mark.commands(quick=3)` keeps the first three parameters of a test in `make test`.
    """
    seen: Counter[str] = Counter()
    for item in items:
        for kind, fixtures in FIXTURES.items():
            if set(fixtures) & set(getattr(item, "fixturenames", ())) and item.get_closest_marker(kind) is None:
                item.add_marker(kind)
        marks = [mark for kind in KINDS if (mark := item.get_closest_marker(kind)) is not None]
        test = item.nodeid.partition("[")[0]
        seen[test] += bool(marks)
        if marks and seen[test] > max(mark.kwargs.get("quick", 0) for mark in marks):
            item.add_marker(LARGE)


@pytest.fixture(scope="session")
def sets_folder() -> Path:
    return shared_path(DATA / "sets")


@pytest.fixture(scope="session")
def oracles() -> dict[str, Any]:
    path = shared_path(SHARED / "oracles.json")
    return {entry["id"]: entry for entry in json.loads(path.read_text())}
