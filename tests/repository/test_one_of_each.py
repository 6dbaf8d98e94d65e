"""What the program needs in many places is written in one: locks, folders of the user, and so on."""

from __future__ import annotations

import re

import pytest
from tests.repository.source_tree import SRC, modules

ROOT = SRC.parents[1]

# what only one module does -> how that shows in the code, and the modules where it may
ONLY_IN = {
    "escapes text": (
        r"import html\b|from html import|saxutils|markupsafe import .*\bescape|u003c|textbackslash|unicode_escape",
        {"kofn.core.escape"},
    ),
    "formats money, clocks and plurals": (
        r"[a-z]\{'s' if |[a-z]\{'s' \* \((?!answers)|[a-z]\{'' if \w+ == 1|[\"' ]\$\{[\w.]+:[.,]|[/%] 3_?600\b",
        {"kofn.core.format"},
    ),
    "chooses the method of an interval": (
        r"\"(?:wilson|bca|expanded)\" if |else \"(?:wilson|bca|expanded)\"|if .*\bin FOR_RATES|< RARE\b",
        {"kofn.stats.estimates"},
    ),
    "draws progress": (r"^\s*(?:from|import) rich\b|\"\\r\" \+", {"kofn.core.progress"}),
    "checks that prices are known": (r"no price is known", {"kofn.generate.pricing"}),
    "locks files": (r"\bflock\(|\blockf\(|\bmsvcrt\b", {"kofn.core.system"}),
    "chooses the folders of a user": (r"XDG_|\.cache\b.*kofn|\bplatformdirs\b|KOFN_DATA\"", {"kofn.core.system"}),
    "imports the module for zstd": (r"import zstd\b|compression\.zstd|backports\.zstd", {"kofn.importers.sources"}),
}


@pytest.mark.parametrize("what", ONLY_IN)
def test_one_module(what):
    pattern, allowed = ONLY_IN[what]
    found = {name for name, path in modules().items() if re.search(pattern, path.read_text(), re.MULTILINE)}
    assert found == allowed, f"one module {what}: use it"


def test_zstandard_is_not_needed():
    files = [*SRC.rglob("*.py"), *(ROOT / "tests").rglob("*.py"), ROOT / "pyproject.toml", ROOT / "constraints.txt"]
    here = ROOT / "tests" / "repository" / "test_one_of_each.py"
    assert [path for path in files if path != here and re.search(r"\bzstandard\b", path.read_text())] == []
