"""Best of n: what k candidates reach and cost, and how many are worth it.

In: candidate sets under one metric. Out: a table by k, a recommended n, and curves.
Imports what `kofn.analysis` may import.
"""
