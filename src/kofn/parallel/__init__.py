"""Runs one function over many items, on the cores of this machine or on a Ray cluster.

In: a function of a module, items, a value that all share. Out: the results in the order of the items.
May import `kofn.core` and `kofn.errors`, and nothing before an engine is made: every worker imports this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kofn.parallel.base import ParallelEngine

ENGINES = ("local", "ray")


def engine(
    name: str, workers: int | None = None, ray_address: str | None = None, shared_path: str | None = None
) -> ParallelEngine:
    """The engine of a name; `ray_address` and `shared_path` are for "ray" alone.

    >>> with engine("local", workers=3) as made:
    ...     made.workers, made.remote
    (3, False)
    >>> engine("rai")
    Traceback (most recent call last):
    kofn.errors.UnknownName: unknown engine 'rai': did you mean ray?
    """
    if name == "local":
        from kofn.parallel.local import LocalEngine

        return LocalEngine(workers)
    if name == "ray":
        from kofn.parallel.ray import RayEngine

        return RayEngine(ray_address, shared_path=shared_path, workers=workers)
    from kofn.errors import UnknownName

    raise UnknownName("engine", name, list(ENGINES))
