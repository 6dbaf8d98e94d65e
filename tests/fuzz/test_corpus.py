"""What once crashed a reader is refused or read: every file of `corpus/TARGET/`, with every `make test`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
FOUND = sorted(path for path in CORPUS.glob("*/*") if path.is_file())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_once_crashed_is_read_or_refused(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_good_examples_are_read(name: str) -> None:
    """A target that refuses its own seeds would be fuzzed at its door alone."""
    target = TARGETS[name]
    for form in target.forms:
        for data in seeds()[form]:
            if target.name in ("replay", "metrics", "typed") or target.name.startswith("match-"):
                target(data)  # these read several things in one piece, not all of which take every seed
            else:
                target.call(data)


def test_every_folder_of_the_corpus_is_a_target() -> None:
    assert {path.parent.name for path in FOUND} <= set(TARGETS)
