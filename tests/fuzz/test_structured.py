"""Hypothesis drives every target with examples that are almost right.

`make test` tries a few of each; `make fuzz` sets KOFN_FUZZ_EXAMPLES and tries many, differently every time.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fuzz.bending import inputs
from tests.fuzz.targets import TARGETS

EXAMPLES = int(os.environ.get("KOFN_FUZZ_EXAMPLES", "6"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TARGETS)
def test_what_is_almost_right_is_read_or_refused(name: str) -> None:
    target = TARGETS[name]

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize="KOFN_FUZZ_EXAMPLES" not in os.environ,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.one_of(map(inputs, target.forms)))
    def read(data: bytes) -> None:
        target(data)

    read()
