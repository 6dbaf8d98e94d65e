"""Importer of Hugging Face datasets: a folder saved by `save_to_disk`, shards as on the Hub, or one Arrow file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
import polars as pl

from kofn.core.warnings import CodedWarning
from kofn.errors import InputError
from kofn.importers.base import Importer, reject_damaged
from kofn.importers.long_form import filter_cases
from kofn.importers.reading import table_from_frame
from kofn.importers.recognition import ARROW_STARTS, SHARD, SPLITS, is_hf_dataset, split_shards, visible_folders

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kofn.core.table import Table
    from kofn.importers.base import ReadOptions
    from kofn.importers.recognition import Peek

_LONGEST_NAME = 200  # of a file: below the 255 bytes that file systems allow


class _Split(NamedTuple):
    """The files of one split, and notes on them."""

    name: str
    files: list[Path]
    notes: list[CodedWarning]


def read(peek: Peek, options: ReadOptions) -> Table:
    """One split: the one named with `--where split=NAME`, else test, validation or train, in this order.

    Its columns are recognised as those of any file of rows.
    """
    if not (splits := _all_splits(peek)):
        raise InputError(f"{peek.source}: no shards of a data set in this folder")
    names = [split.name for split in splits]
    name = options.where.get("split")
    # a split that is no shard may still be a column: then it stays a filter
    where = {k: v for k, v in options.where.items() if k != "split" or name not in names}
    split = splits[names.index(name)] if name in names else splits[0]
    frames = [_frame(path, peek) for path in split.files]
    frame = pl.concat([frame for frame in frames if frame.height] or frames[:1], how="diagonal_relaxed")
    if "split" in where and "split" not in frame.columns:
        raise InputError(f"{peek.source}: no split {name!r}: it has {', '.join(names)}")
    kept = tuple(name for name in options.keep if name != "split" or "split" in frame.columns)
    plain = replace(options, where={}, keep=kept)
    form = "Hugging Face dataset"
    table = table_from_frame(frame, peek.source, plain, form)
    notes = [*table.notes, *split.notes]
    if len(splits) > 1 and name not in names:
        notes.append(CodedWarning.of("left-out-of-log", about="split", split=split.name, splits=tuple(names)))
    table = replace(
        table,
        form=form if table.form == form else f"{form}, {table.form}",
        notes=tuple(notes),
        origin={"tool": "datasets", **({"split": split.name} if split.name else {})},
    )
    return filter_cases(table, replace(options, where=where))


def _all_splits(peek: Peek) -> list[_Split]:
    """Every split of a dataset, the one to read by default first."""
    if not peek.path.is_dir():
        return [_Split("", [peek.path], [])]
    if "dataset_dict.json" in peek.names:
        listed = _json(peek.path / "dataset_dict.json", peek).get("splits")
        names = listed if isinstance(listed, list) else []
        splits = [_saved_split(peek.path / name, str(name), peek) for name in names if (peek.path / str(name)).is_dir()]
        if not splits:
            raise InputError(f"{peek.source}: dataset_dict.json names splits {names}: none of them is there")
    elif "state.json" in peek.names:
        splits = [_saved_split(peek.path, "", peek)]
    else:
        splits = _hub_splits(peek)
    return sorted(splits, key=lambda split: (SPLITS.get(split.name, 3), split.name))


def _saved_split(folder: Path, name: str, peek: Peek) -> _Split:
    """A folder of `save_to_disk`: its state names the files, in order."""
    state = _json(folder / "state.json", peek)
    if state.get("_indices_data_files"):
        raise InputError(f"{peek.source}: rows chosen by an index file: load it with datasets and save it again")
    listed = state.get("_data_files")
    entries = listed if isinstance(listed, list) else []
    names = [str(one["filename"]) for one in entries if isinstance(one, dict) and "filename" in one]
    if not names:
        raise InputError(f"{peek.source}: state.json names no data files: save the dataset again")
    # a name with a path in it could make us read any file of this machine
    if bad := next((one for one in names if PurePath(one).name != one or len(one) > _LONGEST_NAME), None):
        raise InputError(f"{peek.source}: state.json names {bad!r:.60}, which is no file of its folder")
    files = [folder / one for one in names if (folder / one).exists()]
    if not files:
        raise InputError(f"{peek.source}: {names[0]} is not there, which state.json names: copy the whole folder")
    lost = [one for one in names if folder / one not in files]
    return _Split(name, files, [CodedWarning.of("log-incomplete", about="shard", file=one) for one in lost])


def _hub_splits(peek: Peek) -> list[_Split]:
    """Shards in the folder itself or in `data`; folders beside each other are configurations, of which one is read."""
    places = {folder: shards for folder in (peek.path, *visible_folders(peek)) if (shards := split_shards(folder))}
    for folder in (peek.path, peek.path / "data"):
        if folder in places:
            return _splits(places[folder])
    if all(folder.name in SPLITS for folder in places):
        return _splits({path: folder.name for folder, shards in places.items() for path in shards})
    if len(places) > 1:
        names = ", ".join(folder.name for folder in places)
        raise InputError(f"{peek.source}: several configurations ({names}): give the folder of one")
    return _splits(next(iter(places.values())))


def _splits(shards: Mapping[Path, str]) -> list[_Split]:
    """The shards of each split, with a note where their names say that there are more of them."""
    by_name: dict[str, _Split] = {}
    for path, name in shards.items():
        by_name.setdefault(name, _Split(name, [], [])).files.append(path)
    for split in by_name.values():
        counts = {int(m["of"]) for path in split.files if (m := SHARD.fullmatch(path.stem)) and m["of"]}
        if (expected := max(counts, default=0)) > len(split.files):
            split.notes.append(CodedWarning.of("log-incomplete", about="shards", n=len(split.files), of=expected))
    return list(by_name.values())


def _json(path: Path, peek: Peek) -> dict[str, Any]:
    try:
        value = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as problem:
        raise InputError(f"{peek.source}: {path.name} is not readable: {str(problem).partition(chr(10))[0]}") from None
    return value if isinstance(value, dict) else {}


def _frame(path: Path, peek: Peek) -> pl.DataFrame:
    """The rows of a file: Parquet, or Arrow in either of its two forms."""
    with reject_damaged(f"{peek.source}: {path.name}", "Parquet" if path.suffix == ".parquet" else "Arrow"):
        if path.suffix == ".parquet":
            return pl.read_parquet(path)
        with path.open("rb") as file:
            stream = not file.read(8).startswith(ARROW_STARTS[1])
        return pl.read_ipc_stream(path) if stream else pl.read_ipc(path)


IMPORTER = Importer(
    name="hf_dataset", what="a folder of a Hugging Face dataset (Arrow or Parquet)", recognises=is_hf_dataset, read=read
)
