"""Verifies programs against problems with checkpoints, and against data sets of functions with tests.

In: a problem or a data set, and submissions. Out: verdicts per attribute, correctness results, run directories.
May import what lies below `problems`; a worker imports parts of this package, so nothing is imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.core.lazy import lazy_exports

if TYPE_CHECKING:
    from kofn.problems import verification as verification
    from kofn.problems import verification_runs as verification_runs
    from kofn.problems.functions import read_tasks as read_tasks
    from kofn.problems.functions import run_samples as run_samples
    from kofn.problems.functions import write_samples as write_samples
    from kofn.problems.load import load_problem as load_problem
    from kofn.problems.load import new_problem as new_problem
    from kofn.problems.problem import Problem as Problem
    from kofn.problems.problem import lint as lint
    from kofn.problems.verification import Verification as Verification
    from kofn.problems.verification import check_problem_code as check_problem_code
    from kofn.problems.verification import run_checkpoint as run_checkpoint
    from kofn.problems.verification_runs import check_aggregators as check_aggregators
    from kofn.problems.verification_runs import problem_text as problem_text
    from kofn.problems.verification_runs import write_runs as write_runs
    from kofn.problems.verify_progress import VerifyProgress as VerifyProgress
    from kofn.sandbox.program import ProgramLimits as ProgramLimits

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "kofn.problems.functions": ("read_tasks", "run_samples", "write_samples"),
        "kofn.problems.load": ("load_problem", "new_problem"),
        "kofn.problems.problem": ("Problem", "lint"),
        "kofn.problems.verification": ("Verification", "check_problem_code", "run_checkpoint"),
        "kofn.problems.verification_runs": ("check_aggregators", "problem_text", "write_runs"),
        "kofn.problems.verify_progress": ("VerifyProgress",),
        "kofn.sandbox.program": ("ProgramLimits",),
    },
    submodules=("verification", "verification_runs"),
)
