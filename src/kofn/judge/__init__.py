"""Judges: models that grade. A rubric asks, a reply is a verdict or is not graded, and nobody pays twice.

rubric.py     what a judge is asked and how its reply is read: a YAML file
verdict.py    a reply -> a place on the rubric's scale, or none
questions.py  candidates -> questions
asking.py     every output to every judge, through the runner and the store of generation
scores.py     verdicts -> a score a candidate, the judges' variance, a panel, position bias
judging.py    a run or a file, judged: a metric more
pairs.py      two candidates side by side, in both orders
told.py       what there is to say of it
"""

from __future__ import annotations

from kofn.judge.judging import JudgeSettings, judge
from kofn.judge.pairs import prefer
from kofn.judge.rubric import Rubric, load_rubric, names

__all__ = ["JudgeSettings", "Rubric", "judge", "load_rubric", "names", "prefer"]
