"""Backends, one file each: the only place that calls a model.

In: requests (a prompt, how to sample, how many outputs). Out: replies, or one of three errors (`kofn.models.base`).
Imports core and the registry; a backend imports the package that it needs when it makes its first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.core.lazy import lazy_exports

if TYPE_CHECKING:
    from kofn.models.base import Likelihood as Likelihood
    from kofn.models.base import Message as Message
    from kofn.models.base import Model as Model
    from kofn.models.base import Reply as Reply
    from kofn.models.base import Request as Request
    from kofn.models.base import Sampling as Sampling
    from kofn.models.factory import open_model as open_model
    from kofn.models.local_folders import find_adapters as find_adapters

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "kofn.models.base": (
            "Likelihood",
            "Message",
            "Model",
            "Reply",
            "Request",
            "Sampling",
        ),
        "kofn.models.factory": ("open_model",),
        "kofn.models.local_folders": ("find_adapters",),
    },
)
