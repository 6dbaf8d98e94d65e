"""Types and helpers that every other package builds on.

In: plain values, rows and text. Out: candidate sets, tables, documents, parsed numbers and YAML.
Imports `kofn.errors` only.
"""
