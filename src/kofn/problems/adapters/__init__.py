"""Adapters, one file per kind: how a case reaches a program, and what is observed.

`execute.py` imports the one that a problem names, as `kofn.problems.adapters.NAME_adapter`, and calls its `observe`.
"""
