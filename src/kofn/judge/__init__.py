"""Models that grade, and how often they err.

In: candidates and a rubric, or labels from people. Out: verdicts as a metric or selector, rates corrected by labels.
May import the packages up to `generate`, whose runner, store and limits every call of a judge goes through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.core.lazy import lazy_exports

if TYPE_CHECKING:
    from kofn.judge import calibration as calibration
    from kofn.judge import calibration_record as calibration_record
    from kofn.judge import calibration_text as calibration_text
    from kofn.judge.calibration import calibrate as calibrate
    from kofn.judge.client import judge_prompt as judge_prompt
    from kofn.judge.judge_run import judge as judge
    from kofn.judge.judge_settings import JudgeSettings as JudgeSettings
    from kofn.judge.judge_text import judge_facts as judge_facts
    from kofn.judge.judge_text import preference_lines as preference_lines
    from kofn.judge.label_sheet import draw_label_sheet as draw_label_sheet
    from kofn.judge.label_sheet_files import write_sheet as write_sheet
    from kofn.judge.labels import read_labels as read_labels
    from kofn.judge.pairwise import first_questions as first_questions
    from kofn.judge.pairwise import prefer as prefer
    from kofn.judge.rubric import Rubric as Rubric
    from kofn.judge.rubric import load_rubric as load_rubric
    from kofn.judge.rubric import names as names
    from kofn.judge.verdict_source import labels_on_run_scale as labels_on_run_scale
    from kofn.judge.verdict_source import open_verdicts as open_verdicts

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "kofn.judge.calibration": ("calibrate",),
        "kofn.judge.client": ("judge_prompt",),
        "kofn.judge.judge_run": ("judge",),
        "kofn.judge.judge_settings": ("JudgeSettings",),
        "kofn.judge.judge_text": (
            "judge_facts",
            "preference_lines",
        ),
        "kofn.judge.label_sheet": ("draw_label_sheet",),
        "kofn.judge.label_sheet_files": ("write_sheet",),
        "kofn.judge.labels": ("read_labels",),
        "kofn.judge.pairwise": (
            "first_questions",
            "prefer",
        ),
        "kofn.judge.rubric": (
            "Rubric",
            "load_rubric",
            "names",
        ),
        "kofn.judge.verdict_source": (
            "labels_on_run_scale",
            "open_verdicts",
        ),
    },
    submodules=("calibration", "calibration_record", "calibration_text"),
)
