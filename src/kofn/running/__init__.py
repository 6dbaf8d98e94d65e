"""A whole run: cases of a task, outputs of models, numbers, a directory.

settings.py   what a run can be told
prepare.py    task, cases, models and prompts, settled before anything is asked
candidates.py the store's replies -> a table of candidates
finish.py     the table -> a scored run directory
markovian.py  the same reasoning answered without and with the question
go.py         all of it, in order
"""

from __future__ import annotations

from kofn.running.go import forecast, run, run_in
from kofn.running.prepare import Prepared, directory_of, first_prompts, prepare
from kofn.running.settings import DEFAULT_READER, Settings

__all__ = [
    "DEFAULT_READER",
    "Prepared",
    "Settings",
    "directory_of",
    "first_prompts",
    "forecast",
    "prepare",
    "run",
    "run_in",
]
