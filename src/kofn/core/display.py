"""What every result can do: print as a table, show itself in a notebook, and become plain data or a frame."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from kofn.core.document import as_html, document_text
from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from kofn.core.document import Document


class Displayable:
    """The base of results. A subclass has the numbers and `rows`; how it looks is decided in layers above.

    The functions that show it are named as "module:function", and loaded when somebody looks, as an entry of
    `kofn.registry` is: `view` makes its document, `printer` its text, `markdown` its Markdown. `data` makes plain data,
    for a class that does not define `to_dict` itself.
    """

    __slots__ = ()
    view: ClassVar[str]
    data: ClassVar[str]
    printer: ClassVar[str] = "kofn.core.display:document_printer"
    markdown: ClassVar[str] = "kofn.render.run_markdown:document_markdown"

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold, as `--json` prints it."""
        data: dict[str, Any] = _load(self.data)(self)
        return data

    def rows(self) -> list[dict[str, Any]]:
        """The main table as plain values, one dict per row, as `--output-format csv` prints it."""
        raise NotImplementedError

    def document(self) -> Document:
        """Headline, tables, notes and warnings, in order."""
        document: Document = _load(self.view)(self)
        return document

    def to_polars(self) -> pl.DataFrame:
        """The rows as a polars frame."""
        import polars as pl

        return pl.DataFrame(self.rows(), infer_schema_length=None)

    def to_pandas(self) -> Any:
        """The rows as a pandas frame; pandas is an optional package."""
        try:
            import pandas as pd  # type: ignore[import-untyped]
        except ImportError:
            raise InputError("to_pandas() needs pandas: pip install pandas") from None
        return pd.DataFrame(self.rows())

    def to_text(self, style: Callable[[str, str], str] = lambda text, _: text, **layout: Any) -> str:
        """What the terminal shows. `style(text, role)` adds colour; `layout` is what a view takes, such as `width`."""
        text: str = _load(self.printer)(self, style, **layout)
        return text

    def to_markdown(self) -> str:
        """The tables as Markdown."""
        text: str = _load(self.markdown)(self)
        return text

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return as_html(self.document())


def document_printer(found: Displayable, style: Callable[[str, str], str]) -> str:
    """The document of a result as text."""
    return document_text(found.document(), style)


def _load(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
