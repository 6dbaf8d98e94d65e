"""A verification in a process of its own, for tests that kill it."""

from __future__ import annotations

import sys
from pathlib import Path

from kofn.problems import load_problem
from kofn.problems.verification import VerifyOptions, verify

if __name__ == "__main__":
    problem = load_problem(sys.argv[1])
    verify(
        problem, [Path(sys.argv[2])], list(problem.checkpoints), options=VerifyOptions(workers=2), out=Path(sys.argv[3])
    )
