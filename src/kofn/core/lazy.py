"""Exports names lazily: a package offers them without importing the modules behind them."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_exports(
    package: str, names: Mapping[str, tuple[str, ...]], submodules: tuple[str, ...] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package.

    `names` maps each module to the names exported from it; `submodules` are exported as modules. Each is imported when
    it is first used, and kept in the package from then on.

    >>> getattr_, dir_, all_ = lazy_exports("kofn.core", {"kofn.core.types": ("Case", "Score")}, ("table",))
    >>> all_, getattr_("Case").__name__, getattr_("table").__name__
    (['Case', 'Score', 'table'], 'Case', 'kofn.core.table')
    """
    home = {name: module for module, exported in names.items() for name in exported}

    def __getattr__(name: str) -> Any:  # noqa: N807 - it becomes the package's own
        if name in submodules:
            return import_module(f"{package}.{name}")
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home[name]), name)
        setattr(sys.modules[package], name, value)  # found without __getattr__ from now on
        return value

    def __dir__() -> list[str]:  # noqa: N807 - as above
        return sorted([*home, *submodules])

    return __getattr__, __dir__, sorted([*home, *submodules])
