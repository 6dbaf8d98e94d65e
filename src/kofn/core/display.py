"""Lets result objects display themselves in notebooks."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

from kofn.core.notebook import as_html

if TYPE_CHECKING:
    from kofn.core.document import Document


class Displayable:
    """A result with a document. `view` names the function that makes it, as "module:function".

    How a result looks is decided in layers above the one that computes it, so the function is named and loaded when
    somebody looks, as an entry of `kofn.registry` is.
    """

    __slots__ = ()
    view: ClassVar[str]

    def document(self) -> Document:
        """What there is to say of the result, in order."""
        module, _, name = self.view.partition(":")
        document: Document = getattr(import_module(module), name)(self)
        return document

    def _repr_html_(self) -> str:
        return as_html(self.document())
