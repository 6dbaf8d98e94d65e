"""What can run code that somebody wrote into a file is called in few places, and each of them is named here."""

from __future__ import annotations

import ast
import os
import stat
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "kofn"

# what is dangerous -> where it may be, and why it is not there
ALLOWED = {
    "pickle.loads": {
        "parallel/worker.py": "a worker of our own process tree reads what its parent wrote",
        "parallel/base.py": "the parent reads what its own worker wrote",
        "viewer/audit_page.py": "the viewer and the process it starts for one page",
    },
    "pickle.load": {},
    "marshal.loads": {},
    "shelve.open": {},
    "yaml.load": {},
    "yaml.unsafe_load": {},
    "yaml.full_load": {},
    "eval": {},
    "exec": {"sandbox/fork_server_program.py": "a submission's program, inside the sandbox"},
    "compile": {
        "sandbox/fork_server_program.py": "as above",
        "_deprecated.py": "two fixed statements that run a module by its new name",
    },
    "__import__": {},
    "os.system": {},
    "os.popen": {},
    "tempfile.mktemp": {},
}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def called(path: Path) -> set[str]:
    """The dotted names of what a file calls, by the names it is imported under."""
    tree = parsed(path)
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.asname or alias.name: alias.name for alias in node.names}
    return {_name(node.func, names) for node in ast.walk(tree) if isinstance(node, ast.Call)}


def _name(node: ast.expr, names: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value, names)}.{node.attr}"
    return ""


@cache
def calls() -> dict[str, set[str]]:
    return {path.relative_to(SOURCE).as_posix(): called(path) for path in SOURCE.rglob("*.py")}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_can_run_code_is_called_in_the_named_places_alone(name):
    assert {path for path, names in calls().items() if name in names} == set(ALLOWED[name])


def test_no_shell_is_started():
    for path in SOURCE.rglob("*.py"):
        shells = [
            node
            for node in ast.walk(parsed(path))
            if isinstance(node, ast.keyword) and node.arg == "shell" and getattr(node.value, "value", None) is True
        ]
        assert not shells, path


def test_a_call_under_another_name_would_be_seen(tmp_path):
    path = tmp_path / "x.py"
    path.write_text("from pickle import loads as read\nimport yaml as y\nread(b'')\ny.load('')\neval('1')\n")
    assert called(path) >= {"pickle.loads", "yaml.load", "eval"}


def test_a_folder_in_tmp_that_somebody_else_made_is_not_used(tmp_path):
    from kofn.parallel.ray import _is_private

    assert _is_private(tmp_path / "new")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert not _is_private(tmp_path / "open")
    (tmp_path / "link").symlink_to(tmp_path / "new")
    assert not _is_private(tmp_path / "link")
    (tmp_path / "file").touch()
    assert not _is_private(tmp_path / "file")


def test_temporary_folders_are_for_their_owner_alone(tmp_path, monkeypatch):
    """While a compressed file is read its plain copy stands in /tmp, which others can list."""
    import gzip

    from kofn.importers.sources import local

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    packed = tmp_path / "o.jsonl.gz"
    packed.write_bytes(gzip.compress(b'{"id": 1}'))
    old = os.umask(0)
    try:
        with local(str(packed)) as (path, _):
            top = next(parent for parent in path.parents if parent.parent == tmp_path)
            assert stat.S_IMODE(top.stat().st_mode) == 0o700
    finally:
        os.umask(old)
    assert [one.name for one in tmp_path.iterdir()] == [packed.name]


@pytest.mark.parametrize("kind", ["gzip", "zstd", "zip"])
def test_a_file_made_to_fill_the_disk_is_refused(kind, tmp_path, monkeypatch):
    import gzip
    import io
    import zipfile

    from kofn.errors import InputError
    from kofn.importers import read, sources
    from kofn.importers import sources as zipped

    monkeypatch.setattr(sources, "most_plain", lambda packed: 500 * packed)
    monkeypatch.setattr(zipped, "most_plain", lambda packed: 500 * packed)
    zeros = bytes(64 << 20)
    path = tmp_path / "bomb.jsonl"
    if kind == "zip":
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("header.json", '{"version": 2, "status": "success", "eval": {"task": "t"}, "plan": {}}')
            archive.writestr("samples/1_epoch_1.json", zeros)
        path.write_bytes(out.getvalue())
    else:
        path.write_bytes(gzip.compress(zeros) if kind == "gzip" else sources.zstd_module().compress(zeros))
    with pytest.raises(InputError, match="500 times its size"):
        read([path])
