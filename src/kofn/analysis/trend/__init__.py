"""Trends: the runs of a task over time, and which changes are more than chance.

In: directories of stored runs. Out: a `Trend`.
Imports what `kofn.analysis` may import.
"""
