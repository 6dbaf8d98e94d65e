"""`CorrectnessResults`: an evaluation as an object that is saved to and loaded from a directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Self

from kofn.errors import WorldError
from kofn.runs.evaluation_files import load_full_evaluation, save_evaluation
from kofn.runs.files import write_atomically
from kofn.runs.report_classes import Correctness
from kofn.runs.report_table import flat_frame, reports_frame

if TYPE_CHECKING:
    import polars as pl


class CorrectnessResults(Correctness):
    """One evaluation of one checkpoint (or of one run of a task), with its files."""

    def save(self, directory: Path | str) -> None:
        """Write evaluation.json and reports.parquet."""
        save_evaluation(self, Path(directory))

    @classmethod
    def from_dir(cls, directory: Path | str) -> Self:
        """Read what `save` wrote: an equal object."""
        return load_full_evaluation(Path(directory), cls)

    def to_polars(self) -> pl.DataFrame:
        """The case reports as reports.parquet holds them."""
        return reports_frame(self)

    def to_csv(self, path: Path | str) -> None:
        """A row a case and attribute, for spreadsheets."""
        rows = flat_frame(self.to_polars())
        try:
            write_atomically(Path(path), rows.write_csv)
        except OSError as problem:
            raise WorldError(f"{path}: cannot be written: {problem.strerror or problem}") from None
