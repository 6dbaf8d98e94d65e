"""Importer of Inspect logs (UK AI Security Institute): `.eval`, a zip of samples, and `.json`, one document."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError
from kofn.importers.base import Importer, reject_malformed
from kofn.importers.inspect_samples import InvalidSample, SampleStats, row_of
from kofn.importers.json_stream import iter_members, parse_json
from kofn.importers.log_table import LogRow, log_table
from kofn.importers.zip_archive import Archive, DamagedEntry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from zipfile import ZipInfo

    from kofn.core.table import Table
    from kofn.importers.base import Peek
    from kofn.importers.reader_options import ReadOptions

_HEADERS = ("header.json", "_journal/start.json")
_MEMBER = re.compile(rb'"(?:(version)"\s*:\s*\d|(status)"\s*:\s*"|(eval)"\s*:\s*\{|(plan)"\s*:\s*\{)')
_SAMPLE = re.compile(r"samples/(?P<id>.+)_epoch_(?P<epoch>\d+)(?P<chunked>/sample)?\.json", re.DOTALL)
_TEXTS = re.compile(r"(?P<prefix>samples/.+/)attachments/(?P<start>\d+)\.json", re.DOTALL)
_LOWER = {"perplexity": False, "target_perplexity": False}
_EXAMPLES = 3
_MOST_EPOCHS = 100_000  # more in a header is a damaged one, and would be listed as missing samples


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
    """Samples by id, their epochs as repeats, with notes on what the log says is missing or unfinished."""
    log = _InspectLog(peek, options, SampleStats())
    if peek.head.startswith(b"PK\x03\x04"):
        with Archive(peek.path, peek.source) as archive:
            return log.table(log.of_archive(archive))
    return log.table(log.of_document())


class _InspectLog:
    """A log while it is read: its header, its samples as they come, and notes at the end."""

    def __init__(self, peek: Peek, options: ReadOptions, stats: SampleStats) -> None:
        self.peek, self.options, self.stats = peek, options, stats
        self.header: dict[str, Any] = {}
        self.fields = {"id": "id", "repeat": "epoch", "text": "output.completion", "reference": "target"}
        self.origin: dict[str, Any] = {"tool": "inspect"}
        self.labels = dict(_LOWER)
        self.notes: list[str] = []
        self.lost: list[str] = []

    def table(self, rows: Iterator[LogRow]) -> Table:
        # labels, notes and origin are complete once the last row was yielded: `log_table` reads them after the rows
        return log_table(
            self._finished(rows),
            source=self.peek.source,
            form="Inspect samples",
            options=self.options,
            labels=self.labels,
            notes=self.notes,
            origin=self.origin,
            fields=self.fields,
        )

    def of_archive(self, archive: Archive) -> Iterator[LogRow]:
        """The samples of a `.eval` file in the order of its data set, one in memory at a time."""
        self.header = self._zip_header(archive)
        spec = self.header.get("eval", {})
        place = {str(one): at for at, one in enumerate(_dataset(spec).get("sample_ids") or ())}
        samples = [(match, entry) for entry in archive.entries if (match := _SAMPLE.fullmatch(entry.filename))]
        samples.sort(key=lambda one: (place.get(one[0]["id"], len(place)), int(one[0]["epoch"])))
        texts = _attachments(archive) if any(match["chunked"] for match, _ in samples) else {}
        for match, entry in samples:
            try:
                sample = _parse_entry(archive.read(entry))
                if match["chunked"]:
                    prefix = entry.filename.removesuffix("sample.json")
                    sample = _join_chunks(archive, sample, prefix, texts.get(prefix, ()))
            except DamagedEntry as problem:
                self.lost.append(f"{entry.filename} ({problem})")
                continue
            yield from self._row(entry.filename, sample)

    def of_document(self) -> Iterator[LogRow]:
        """The samples of a `.json` file in the order of the file."""
        number = 0
        for (name, *_), value in iter_members(self.peek.path, self.peek.source, [("samples",)]):
            if name == "samples":
                if value is None:  # a log of the header alone
                    continue
                number += 1
                yield from self._row(f"sample {number}", value)
            else:
                self.header[name] = value

    def _zip_header(self, archive: Archive) -> dict[str, Any]:
        for name in _HEADERS:
            if (entry := archive.entry(name)) is None:
                continue
            try:
                found = _parse_entry(archive.read(entry))
            except DamagedEntry as problem:
                self.notes.append(f"{name} cannot be read ({problem})")
                continue
            if isinstance(found, dict):
                return found if name == _HEADERS[0] else {**found, "status": "started"}
        return {}

    def _row(self, place: str, sample: Any) -> Iterator[LogRow]:
        try:
            yield LogRow(place, row_of(sample, self.stats, self.options, self.header))
        except InvalidSample as problem:
            self.lost.append(f"{place} ({problem})")

    def _finished(self, rows: Iterator[LogRow]) -> Iterator[LogRow]:
        yield from rows
        if not self.stats.n:
            raise InputError(f"{self.peek.source}: {self._nothing()}")
        with reject_malformed(f"{self.peek.source}: header", "Inspect"):
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
        if self.stats.answers is not None:
            self.fields["answer"] = f"scores.{self.stats.answers}.answer"
        self.labels |= dict.fromkeys((spec.get("metadata") or {}).get("lower_is_better") or (), False)
        self.fields |= {f"label.{name}": f"scores.{name}" for name in self.stats.labels}
        self.notes += self._about_log()

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
            yield f"the log is not finished: the run was going, or was killed; samples read: {self.stats.n:,}"
        elif status in ("cancelled", "error"):
            why = str((self.header.get("error") or {}).get("message") or "").partition("\n")[0]
            yield f"the run ended with status {status}{f' ({why:.80})' if why else ''}"
        if self.lost:
            are = "sample cannot be read and is" if len(self.lost) == 1 else "samples cannot be read and are"
            yield f"{len(self.lost):,} {are} left out: {', '.join(self.lost[:_EXAMPLES])}"
        if not self.stats.labels and not self.stats.failed:
            yield "no sample of this log is scored"
        yield from self._missing(self.header.get("eval", {}))
        yield from self.stats.notes()

    def _missing(self, spec: Mapping[str, Any]) -> Iterator[str]:
        """Samples that the run was to make, according to the header, and that the log lacks."""
        config = spec.get("config") or {}
        epochs = config.get("epochs") or 1
        if not isinstance(epochs, int) or not 0 < epochs <= _MOST_EPOCHS:
            raise InputError(
                f"{self.peek.source}: header: {epochs!r:.40} epochs: expected a whole number up to {_MOST_EPOCHS:,}"
            )
        ids = _dataset(spec).get("sample_ids")
        if ids:
            planned = [(str(one), epoch) for one in ids for epoch in range(1, epochs + 1)]
            missing = [f"{one} epoch {epoch}" for one, epoch in planned if (one, epoch) not in self.stats.epochs]
            expected, n_missing = len(planned), len(missing)
        else:
            results = self.header.get("results") or {}
            expected = results.get("total_samples") or _limited_size(_dataset(spec).get("samples"), config) * epochs
            missing, n_missing = [], max(0, expected - len(self.stats.epochs))
        if n_missing:
            which = f" ({', '.join(missing[:_EXAMPLES])})" if missing else ""
            yield f"{n_missing:,} of {expected:,} samples are missing{which}"


def _dataset(spec: Mapping[str, Any]) -> dict[str, Any]:
    found = spec.get("dataset")
    return found if isinstance(found, dict) else {}


def _limited_size(samples: Any, config: Mapping[str, Any]) -> int:
    """Samples of a data set under the limit of a run: a count, or from and to."""
    size, limit = int(samples or 0), config.get("limit")
    if isinstance(limit, list) and len(limit) == 2:
        return max(0, min(size, int(limit[1])) - int(limit[0]))
    return min(size, limit) if isinstance(limit, int) else size


def _parse_entry(data: bytes) -> Any:
    try:
        return parse_json(data)
    except ValueError as problem:
        raise DamagedEntry(f"not JSON: {problem!s:.80}") from None


def _attachments(archive: Archive) -> dict[str, list[ZipInfo]]:
    """The entries with the texts of each sample that is stored in chunks, in order, by the sample's folder."""
    found: dict[str, list[tuple[int, ZipInfo]]] = {}
    for entry in archive.entries:
        if match := _TEXTS.fullmatch(entry.filename):
            found.setdefault(match["prefix"], []).append((int(match["start"]), entry))
    return {prefix: [entry for _, entry in sorted(some, key=lambda one: one[0])] for prefix, some in found.items()}


def _join_chunks(archive: Archive, shell: Any, prefix: str, texts: Iterable[ZipInfo]) -> Any:
    """A sample stored in chunks, put together from its shell, its metadata and the texts it refers to."""
    if not isinstance(shell, dict):
        return shell
    metadata = archive.entry(f"{prefix}metadata.json")
    more = {} if metadata is None else {"metadata": _parse_entry(archive.read(metadata))}
    return {**shell, **more, "attachments": [text for entry in texts for text in _parse_entry(archive.read(entry))]}


IMPORTER = Importer(name="inspect", what="Inspect logs (.eval and .json)", recognises=recognises, read=read)
