"""Backends, one file each: the only place that calls a model.

In: requests (a prompt, how to sample, how many outputs). Out: replies, or one of three errors (`kofn.models.base`).
Imports core and the registry; a backend imports the package that it needs when it makes its first call.
"""

from kofn.core.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)  # the names are in __init__.pyi
