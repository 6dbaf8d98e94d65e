"""docs/warnings.md says what the registry says."""

from __future__ import annotations

from tests.repository.warnings_page import PAGE, page


def test_the_page_is_what_the_registry_says():
    assert PAGE.read_text() == page(), "run: .venv/bin/python -m tests.repository.warnings_page"
