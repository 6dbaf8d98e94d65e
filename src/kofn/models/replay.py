"""`replay:FILE`: stored outputs served as a model, for tests and to run a task again without paying for it.

A file of JSON lines, wide (`{"id", "outputs": [...]}`) or long (`{"id", "output", "repeat"?}`), a `candidates.parquet`
or the run directory that holds one. An output is found by its case and repeat; the prompt is not looked at.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from kofn.core.fields import CANDIDATE_ROLES, CASE_ROLES, WIDE, recognise
from kofn.errors import InputError
from kofn.models.base import Model, Reply, RequestRejected
from kofn.runs.files import digest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from kofn.models.base import Request

    RoleRow = tuple[str, int | None, Mapping[str, Any]]  # case, repeat if the file has one, the output by role

_NAMES = CASE_ROLES | CANDIDATE_ROLES
ROLES = {role: _NAMES[role] for role in ("id", "repeat", "text", "reasoning", "error", "tokens")}


class Replay(Model):
    """Outputs of a file of JSON lines or of a run directory: replay:FILE."""

    local: ClassVar[bool] = True

    def __init__(self, spec: str) -> None:
        self.name, self.path = f"replay:{spec}", Path(spec).expanduser()
        self.samples, self.concurrency = 64, 4
        self._stored: dict[tuple[str, int], Mapping[str, Any]] | None = None
        if not self.path.exists():
            raise InputError(f"model {self.name}: there is no such file or folder")

    async def generate(self, requests: Sequence[Request]) -> AsyncIterator[Reply]:
        """What is stored; a case or repeat that is not there is declined, after the replies of those before it."""
        if self._stored is None:
            self._stored = read_stored(self.path)
        for place, request in enumerate(requests):
            if (case := request.case_id) is None:
                raise RequestRejected(f"{self.path}: outputs are found by their case, and this request names none")
            for index in range(request.n):
                repeat = (request.repeat or 0) + index
                if (stored := self._stored.get((case, repeat))) is None:
                    raise RequestRejected(f"{self.path}: no output for case {case!r}, repeat {repeat}")
                if not isinstance(text := stored.get("text"), str):
                    error = stored.get("error") or f"{self.path}: case {case!r}, repeat {repeat} has no text"
                    raise RequestRejected(str(error))
                tokens, reasoning = stored.get("tokens"), stored.get("reasoning")
                yield Reply(
                    text=text,
                    place=place,
                    index=index,
                    reasoning=reasoning if isinstance(reasoning, str) else None,
                    tokens_out=int(tokens) if isinstance(tokens, int | float) and tokens >= 0 else None,
                )

    def describe(self) -> dict[str, Any]:
        """The file and its digest."""
        file = _file(self.path)
        return {"name": self.name, "file": file.name, "sha256": digest(file)}


def read_stored(path: Path) -> dict[tuple[str, int], Mapping[str, Any]]:
    """(case, repeat) -> output by role. Outputs that name no repeat are counted as they come."""
    file = _file(path)
    rows = _table_rows(file) if file.suffix == ".parquet" else _json_rows(file)
    stored: dict[tuple[str, int], Mapping[str, Any]] = {}
    seen: dict[str, int] = {}
    for case, given, output in rows:
        repeat = seen.get(case, 0) if given is None else given
        if (case, repeat) in stored:
            raise InputError(f"{file}: case {case!r} has repeat {repeat} twice")
        stored[case, repeat] = output
        seen[case] = repeat + 1
    return stored


def _file(path: Path) -> Path:
    return path / "candidates.parquet" if path.is_dir() else path


def _table_rows(file: Path) -> Iterator[RoleRow]:
    import polars as pl

    try:
        frame = pl.read_parquet(file)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as problem:
        raise InputError(f"{file}: cannot be read as Parquet: {str(problem).partition(chr(10))[0]}") from None
    if "repeat" not in frame.columns:
        frame = frame.rename({"index": "repeat"}, strict=False)
    for record in frame.iter_rows(named=True):
        roles = _roles(record)
        if "id" not in roles or not {"text", "error"} & set(roles):
            raise InputError(f"{file}: expected columns case_id, index and text, found {', '.join(record)}")
        yield str(roles["id"]), _whole(roles.get("repeat")), roles


def _json_rows(file: Path) -> Iterator[RoleRow]:
    import orjson

    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield from _record_rows(f"{file}: line {number}", orjson.loads(line))
    except orjson.JSONDecodeError:
        raise InputError(f"{file}: line {number} is no JSON: expected one object a line, or a .parquet") from None
    except OSError as problem:
        raise InputError(f"{file}: {problem.strerror}") from None


def _record_rows(where: str, record: Any) -> Iterator[RoleRow]:
    roles = _roles(record) if isinstance(record, dict) else {}
    if roles.get("id") is None:
        raise InputError(f"{where}: expected an object with an id")
    case = str(roles["id"])
    outputs = next((record[name] for name in WIDE if isinstance(record.get(name), list)), None)
    if outputs is not None:
        for output in outputs:
            one = _roles(output) if isinstance(output, dict) else {"text": output}
            yield case, _whole(one.get("repeat")), one
    elif {"text", "error"} & set(roles):
        yield case, _whole(roles.get("repeat")), roles
    else:
        raise InputError(f'{where}: no output: expected "outputs", a list, or "output", a text')


def _roles(record: Mapping[str, Any]) -> dict[str, Any]:
    return {role: record[name] for role, name in recognise(record, ROLES).items()}


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
