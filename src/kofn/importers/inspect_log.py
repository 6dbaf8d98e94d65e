"""Logs of Inspect (UK AI Security Institute): `.eval`, a zip with an entry a sample, and `.json`, one document."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError
from kofn.importers.base import Importer, as_written
from kofn.importers.documents import members, parsed
from kofn.importers.records import Row, log_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from zipfile import ZipInfo

    from kofn.importers.base import Peek
    from kofn.importers.inspect_samples import Tally
    from kofn.importers.rows import ReadOptions
    from kofn.importers.zipped import Archive
    from kofn.table import Table

_HEADERS = ("header.json", "_journal/start.json")
_MEMBER = re.compile(rb'"(?:(version)"\s*:\s*\d|(status)"\s*:\s*"|(eval)"\s*:\s*\{|(plan)"\s*:\s*\{)')
_SAMPLE = re.compile(r"samples/(?P<id>.+)_epoch_(?P<epoch>\d+)(?P<chunked>/sample)?\.json", re.DOTALL)
_TEXTS = re.compile(r"(?P<prefix>samples/.+/)attachments/(?P<start>\d+)\.json", re.DOTALL)
_LOWER = {"perplexity": False, "target_perplexity": False}
_SHOWN = 3
_MOST_EPOCHS = 100_000


def recognises(peek: Peek) -> bool:
    """A zip with a header, a journal or samples, whole or not; or an object with version, status, eval and plan."""
    if peek.head.startswith(b"PK\x03\x04"):
        first = peek.head[30:120]  # the name of the first entry, where the archive lacks its directory
        return _is_log(peek.names) or (not peek.names and (b"_journal/" in first or b"samples/" in first))
    start = peek.head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not start.startswith(b"{"):
        return False
    found = {name for names in _MEMBER.findall(start) for name in names}
    if not found >= {b"version", b"eval"} or found.isdisjoint({b"status", b"plan"}) or b'"task"' not in start:
        return False
    return peek.first is None or isinstance(peek.first.get("eval"), dict)


def _is_log(names: Iterable[str]) -> bool:
    known = set(names)
    return not known.isdisjoint(_HEADERS) or any(_SAMPLE.fullmatch(name) for name in known)


def read(peek: Peek, options: ReadOptions) -> Table:
    """Samples by id, their epochs as repeats; what the log itself says is missing or unfinished is told."""
    from kofn.importers.inspect_samples import Tally

    log = _Log(peek, options, Tally())
    if peek.head.startswith(b"PK\x03\x04"):
        from kofn.importers.zipped import Archive

        with Archive(peek.path, peek.shown) as archive:
            return log.table(log.of_archive(archive))
    return log.table(log.of_document())


class _Log:
    """A log while it is read: its header, its samples as they come, and what there is to say in the end."""

    def __init__(self, peek: Peek, options: ReadOptions, tally: Tally) -> None:
        self.peek, self.options, self.tally = peek, options, tally
        self.header: dict[str, Any] = {}
        self.fields = {"id": "id", "repeat": "epoch", "text": "output.completion", "reference": "target"}
        self.origin: dict[str, Any] = {"tool": "inspect"}
        self.labels = dict(_LOWER)
        self.told: list[str] = []
        self.lost: list[str] = []

    def table(self, rows: Iterator[Row]) -> Table:
        # what is told and where it came from is known when the last row is out: both are read after the rows
        return log_table(
            self._finished(rows),
            source=self.peek.shown,
            form="Inspect samples",
            options=self.options,
            labels=self.labels,
            told=self.told,
            origin=self.origin,
            fields=self.fields,
        )

    def of_archive(self, archive: Archive) -> Iterator[Row]:
        """The samples of a `.eval` file in the order of its data set, one in memory at a time."""
        from kofn.importers.zipped import Damaged

        self.header = self._zip_header(archive)
        spec = self.header.get("eval", {})
        place = {str(one): at for at, one in enumerate(_dataset(spec).get("sample_ids") or ())}
        found = [(named, entry) for entry in archive.entries if (named := _SAMPLE.fullmatch(entry.filename))]
        found.sort(key=lambda one: (place.get(one[0]["id"], len(place)), int(one[0]["epoch"])))
        texts = _attachments(archive) if any(named["chunked"] for named, _ in found) else {}
        for named, entry in found:
            try:
                sample = _parsed(archive.read(entry))
                if named["chunked"]:
                    prefix = entry.filename.removesuffix("sample.json")
                    sample = _whole(archive, sample, prefix, texts.get(prefix, ()))
            except Damaged as problem:
                self.lost.append(f"{entry.filename} ({problem})")
                continue
            yield from self._row(entry.filename, sample)

    def of_document(self) -> Iterator[Row]:
        """The samples of a `.json` file as they stand in it."""
        number = 0
        for (name, *_), value in members(self.peek.path, self.peek.shown, [("samples",)]):
            if name == "samples":
                if value is None:  # a log of the header alone
                    continue
                number += 1
                yield from self._row(f"sample {number}", value)
            else:
                self.header[name] = value

    def _zip_header(self, archive: Archive) -> dict[str, Any]:
        from kofn.importers.zipped import Damaged

        for name in _HEADERS:
            if (entry := archive.entry(name)) is None:
                continue
            try:
                found = _parsed(archive.read(entry))
            except Damaged as problem:
                self.told.append(f"{name} cannot be read ({problem})")
                continue
            if isinstance(found, dict):
                return found if name == _HEADERS[0] else {**found, "status": "started"}
        return {}

    def _row(self, place: str, sample: Any) -> Iterator[Row]:
        from kofn.importers.inspect_samples import NoSample, row_of

        try:
            yield Row(place, row_of(sample, self.tally, self.options, self.header))
        except NoSample as problem:
            self.lost.append(f"{place} ({problem})")

    def _finished(self, rows: Iterator[Row]) -> Iterator[Row]:
        yield from rows
        if not self.tally.n:
            raise InputError(f"{self.peek.shown}: {self._nothing()}")
        with as_written(f"{self.peek.shown}: header", "Inspect"):
            self._read_header()

    def _read_header(self) -> None:
        spec = self.header.get("eval", {})
        packages = spec.get("packages") or {}
        known = {
            "task": spec.get("task"),
            "model": spec.get("model"),
            "version": packages.get("inspect_ai"),
            "created": spec.get("created"),
            "attempt_of": spec.get("task_id"),
        }
        self.origin |= {name: value for name, value in known.items() if value}
        if self.tally.answers is not None:
            self.fields["answer"] = f"scores.{self.tally.answers}.answer"
        self.labels |= dict.fromkeys((spec.get("metadata") or {}).get("lower_is_better") or (), False)
        self.fields |= {f"label.{name}": f"scores.{name}" for name in self.tally.labels}
        self.told += self._about_log()

    def _nothing(self) -> str:
        if self.lost:
            return f"none of its {len(self.lost):,} samples can be read: {self.lost[0]}"
        spec = self.header.get("eval")
        config = (spec.get("config") if isinstance(spec, dict) else None) or {}
        if isinstance(config, dict) and config.get("log_samples") is False:
            return "no samples in this Inspect log: it was made without them (log_samples is off)"
        return f"no samples in this Inspect log (status {self.header.get('status', 'unknown')})"

    def _about_log(self) -> Iterator[str]:
        status = self.header.get("status")
        if status == "started":
            yield f"the log is not finished: the run was going, or was killed; samples read: {self.tally.n:,}"
        elif status in ("cancelled", "error"):
            why = str((self.header.get("error") or {}).get("message") or "").partition("\n")[0]
            yield f"the run ended with status {status}{f' ({why:.80})' if why else ''}"
        if self.lost:
            are = "sample cannot be read and is" if len(self.lost) == 1 else "samples cannot be read and are"
            yield f"{len(self.lost):,} {are} left out: {', '.join(self.lost[:_SHOWN])}"
        if not self.tally.labels and not self.tally.failed:
            yield "no sample of this log is scored"
        yield from self._missing(self.header.get("eval", {}))
        yield from self.tally.told()

    def _missing(self, spec: Mapping[str, Any]) -> Iterator[str]:
        """Samples that the log says were to be made and that are not there."""
        config = spec.get("config") or {}
        epochs = config.get("epochs") or 1
        if not isinstance(epochs, int) or not 0 < epochs <= _MOST_EPOCHS:
            raise InputError(
                f"{self.peek.shown}: header: {epochs!r:.40} epochs: expected a whole number up to {_MOST_EPOCHS:,}"
            )
        ids = _dataset(spec).get("sample_ids")
        if ids:
            wanted = [(str(one), epoch) for one in ids for epoch in range(1, epochs + 1)]
            lacking = [f"{one} epoch {epoch}" for one, epoch in wanted if (one, epoch) not in self.tally.seen]
            expected, missing = len(wanted), len(lacking)
        else:
            results = self.header.get("results") or {}
            expected = results.get("total_samples") or _limited(_dataset(spec).get("samples"), config) * epochs
            lacking, missing = [], max(0, expected - len(self.tally.seen))
        if missing:
            which = f" ({', '.join(lacking[:_SHOWN])})" if lacking else ""
            yield f"{missing:,} of {expected:,} samples are missing{which}"


def _dataset(spec: Mapping[str, Any]) -> dict[str, Any]:
    found = spec.get("dataset")
    return found if isinstance(found, dict) else {}


def _limited(samples: Any, config: Mapping[str, Any]) -> int:
    """Samples of a data set under the limit of a run: a count, or from and to."""
    size, limit = int(samples or 0), config.get("limit")
    if isinstance(limit, list) and len(limit) == 2:
        return max(0, min(size, int(limit[1])) - int(limit[0]))
    return min(size, limit) if isinstance(limit, int) else size


def _parsed(data: bytes) -> Any:
    from kofn.importers.zipped import Damaged

    try:
        return parsed(data)
    except ValueError as problem:
        raise Damaged(f"not JSON: {problem!s:.80}") from None


def _attachments(archive: Archive) -> dict[str, list[ZipInfo]]:
    """The entries with the texts of each sample that is stored in chunks, in order, by the sample's folder."""
    found: dict[str, list[tuple[int, ZipInfo]]] = {}
    for entry in archive.entries:
        if named := _TEXTS.fullmatch(entry.filename):
            found.setdefault(named["prefix"], []).append((int(named["start"]), entry))
    return {prefix: [entry for _, entry in sorted(some, key=lambda one: one[0])] for prefix, some in found.items()}


def _whole(archive: Archive, shell: Any, prefix: str, texts: Iterable[ZipInfo]) -> Any:
    """A sample stored in chunks: what is needed of it is its shell, its metadata and the texts it refers to."""
    if not isinstance(shell, dict):
        return shell
    metadata = archive.entry(f"{prefix}metadata.json")
    more = {} if metadata is None else {"metadata": _parsed(archive.read(metadata))}
    return {**shell, **more, "attachments": [text for entry in texts for text in _parsed(archive.read(entry))]}


IMPORTER = Importer(name="inspect", what="Inspect logs (.eval and .json)", recognises=recognises, read=read)
