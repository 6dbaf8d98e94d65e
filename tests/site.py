"""What mkdocs.yml and docs/hooks.py say of the site, read without mkdocs."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def _hooks() -> Any:
    spec = importlib.util.spec_from_file_location("kofn_docs_hooks", DOCS / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HOOKS = _hooks()


def nav_pages() -> list[str]:
    """Every page of the nav, in order."""
    return list(_leaves(HOOKS.expanded(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])))


def _leaves(nav: Any) -> Any:
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from _leaves(part)
