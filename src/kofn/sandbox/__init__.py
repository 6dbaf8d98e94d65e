"""Runs untrusted programs in a sandbox and within limits.

In: a command, its files, its limits. Out: how its process ended, its output, and the files it left. A sandbox driver is
a subclass of `Sandbox` in `base.py`, such as that in `bubblewrap.py`; `drivers.py` picks one.
May import `kofn.errors` and `kofn.parallel`; workers import this package, so it needs the standard library alone.
"""
