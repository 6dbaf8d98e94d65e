"""Exports names lazily: a package offers them without importing the modules behind them."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def lazy_exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package, from the `__init__.pyi` that type checkers read.

    Each line there is `from MODULE import NAME as NAME`. A module is imported when a name of it is first used, and the
    name kept in the package from then on.

    >>> import kofn.stats
    >>> getattr_, dir_, all_ = lazy_exports("kofn.stats")
    >>> "wilson" in all_, getattr_("wilson").__name__, getattr_("corrected_rates").__name__
    (True, 'wilson', 'kofn.stats.corrected_rates')
    """
    home = {name: module for _, module, _, name, _, _ in map(str.split, _stub(package).splitlines())}

    def __getattr__(name: str) -> Any:  # noqa: N807 - it becomes the package's own
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if home[name] == package:
            return import_module(f"{package}.{name}")
        value = getattr(import_module(home[name]), name)
        setattr(sys.modules[package], name, value)  # found without __getattr__ from now on
        return value

    def __dir__() -> list[str]:  # noqa: N807 - as above
        return sorted(home)

    return __getattr__, __dir__, sorted(home)


def _stub(package: str) -> str:
    """The stub of a package, by whatever loads the package: a folder, or a zip archive."""
    module: Any = sys.modules[package]
    text: str = module.__spec__.loader.get_data(f"{module.__path__[0]}/__init__.pyi").decode()
    return text
