"""Comparisons of systems, graders and selectors on the same cases.

In: results or tables of two or more sides. Out: a `ComparisonReport`.
Imports what `kofn.analysis` may import.
"""
