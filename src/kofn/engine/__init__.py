"""Engines: one function over many items, on this machine or on a Ray cluster. `engine` makes one by its name.

Nothing is imported until an engine is made: every worker process imports this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kofn.engine.base import Engine

ENGINES = ("local", "ray")


def engine(
    name: str, workers: int | None = None, ray_address: str | None = None, shared_path: str | None = None
) -> Engine:
    """The engine of a name; `ray_address` and `shared_path` are for "ray" alone.

    >>> with engine("local", workers=3) as made:
    ...     made.workers, made.remote
    (3, False)
    >>> engine("rai")
    Traceback (most recent call last):
    kofn.errors.UnknownName: unknown engine 'rai': did you mean ray?
    """
    if name == "local":
        from kofn.engine.local import Local

        return Local(workers)
    if name == "ray":
        from kofn.engine.ray import Ray

        return Ray(ray_address, shared_path=shared_path, workers=workers)
    from kofn.errors import UnknownName

    raise UnknownName("engine", name, list(ENGINES))
