from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def oracle(oracles):
    """Look up a worked example from published sources; skipped where the file is not at hand."""
    return oracles.__getitem__
