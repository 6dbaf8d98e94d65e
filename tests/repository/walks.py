"""A model for the walk of `kofn run`."""

from __future__ import annotations


def answer(prompt):
    """Always the same."""
    return f"The answer is {len(str(prompt))}."
