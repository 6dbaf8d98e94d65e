"""Where files are read from: compressed, by pattern, from a pipe, over the network; what fails says so in one line."""

from __future__ import annotations

import bz2
import gzip
import http.server
import json
import lzma
import subprocess
import sys
import threading

import pytest

import kofn
from kofn.errors import InputError, WorldError
from kofn.importers import read
from kofn.importers.base import Importer, ReadOptions
from kofn.importers.sources import expand, zstd_module

ROWS = [{"id": f"q{i}", "reference": "4", "outputs": ["4", "5"]} for i in range(50)]
PLAIN = ("\n".join(map(json.dumps, ROWS)) + "\n").encode()


def zstd(data):
    return zstd_module().compress(data)


PACKERS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstd}


def mean(*paths, **options):
    return kofn.score([str(p) for p in paths], **options).get("mean").point


@pytest.mark.parametrize("ending", PACKERS)
@pytest.mark.parametrize("named", [True, False])
def test_a_compressed_file_is_read_like_the_plain_one_whatever_it_is_called(ending, named, tmp_path):
    path = tmp_path / (f"f.jsonl.{ending}" if named else "outputs")
    path.write_bytes(PACKERS[ending](PLAIN))
    result = kofn.score(str(path))
    assert (result.n_cases, result.n_candidates, result.get("mean").point) == (50, 100, 0.5)
    assert result.understood["sources"] == [str(path)]


@pytest.mark.parametrize("ending", PACKERS)
def test_a_compressed_file_that_was_cut_is_refused_by_its_own_name(ending, tmp_path):
    path = tmp_path / f"f.jsonl.{ending}"
    data = PACKERS[ending](PLAIN * 20)
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match=r"f\.jsonl.*damaged") as problem:
        read([path])
    assert str(path) in str(problem.value)


def test_two_compressed_members_are_one_file(tmp_path):
    for name, pack in PACKERS.items():
        path = tmp_path / f"two.jsonl.{name}"
        path.write_bytes(pack(PLAIN[: len(PLAIN) // 2]) + pack(PLAIN[len(PLAIN) // 2 :]))
        assert read([path]).n_cases == 50, name


def test_a_mistake_inside_a_compressed_file_names_that_file_and_the_line(tmp_path):
    path = tmp_path / "f.jsonl.gz"
    path.write_bytes(gzip.compress(PLAIN + b"{broken\n"))
    with pytest.raises(InputError) as problem:
        read([path])
    assert str(path) in str(problem.value)
    assert "line 51" in str(problem.value)
    assert "/kofn-" not in str(problem.value)


def test_patterns_are_expanded_in_order_of_number(tmp_path):
    for i in (10, 2, 1):
        (tmp_path / f"rs{i}.jsonl").write_bytes(PLAIN)
    found = expand([f"{tmp_path}/rs*.jsonl"])
    assert [name.rpartition("/")[2] for name in found] == ["rs1.jsonl", "rs2.jsonl", "rs10.jsonl"]
    assert read([f"{tmp_path}/rs*.jsonl"]).n_candidates == 300
    with pytest.raises(InputError, match="no file matches"):
        read([f"{tmp_path}/nothing*.jsonl"])


def test_a_file_whose_name_is_a_pattern_is_itself(tmp_path):
    path = tmp_path / "a[1].jsonl"
    path.write_bytes(PLAIN)
    assert read([path]).n_cases == 50


@pytest.mark.commands
def test_a_pipe_may_be_compressed():
    for packed in (PLAIN, gzip.compress(PLAIN), zstd(PLAIN)):
        done = subprocess.run(
            [sys.executable, "-m", "kofn", "score", "-", "--json"], input=packed, capture_output=True, check=True
        )
        assert json.loads(done.stdout)["n_candidates"] == 100


def test_memory_addresses_and_patterns_go_through_fsspec():
    fsspec = pytest.importorskip("fsspec")
    files = fsspec.filesystem("memory")
    for i in range(2):
        with files.open(f"/kofn-test/run{i}.jsonl.gz", "wb") as file:
            file.write(gzip.compress(PLAIN))
    assert mean("memory://kofn-test/run0.jsonl.gz") == 0.5
    assert read(["memory://kofn-test/run*.jsonl.gz"], as_repeats=True).n_candidates == 200
    with pytest.raises(InputError, match="no such file"):
        read(["memory://kofn-test/absent.jsonl"])
    with pytest.raises(InputError, match="no file matches"):
        read(["memory://kofn-test/absent*.jsonl"])
    with pytest.raises(InputError, match="nosuch"):
        read(["nosuch://a/b.jsonl"])


class _Files(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        known = self.path.startswith("/ok")
        self.send_response(200 if known else 500)
        self.send_header("Content-Length", str(len(PLAIN) if known else 0))
        self.end_headers()
        if known:
            self.wfile.write(PLAIN)

    def do_HEAD(self):
        self.do_GET()

    def log_message(self, *args):
        """Nothing: a test's output is read by people."""


@pytest.mark.long
def test_a_file_of_a_web_server_and_a_server_that_fails(tmp_path):
    pytest.importorskip("fsspec")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Files)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    at = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        done = subprocess.run(
            [sys.executable, "-m", "kofn", "score", f"{at}/ok.jsonl?token=SECRET", "--out", tmp_path / "run"],
            capture_output=True, text=True, check=True, timeout=120,
        )  # fmt: skip
        assert "50 cases x 2" in done.stdout
        assert "SECRET" not in (tmp_path / "run" / "run.json").read_text()
        with pytest.raises(WorldError, match="cannot be fetched"):
            read([f"{at}/fails.jsonl"])
    finally:
        server.shutdown()
        server.server_close()


def test_the_same_file_twice_is_refused(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(PLAIN)
    with pytest.raises(InputError, match="given twice"):
        read([path, tmp_path / "." / "a.jsonl"])


def test_a_format_nobody_knows_is_offered_the_nearest(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(PLAIN)
    with pytest.raises(InputError, match=r"unknown format 'jsnl': did you mean jsonl"):
        read([path], ReadOptions(format="jsnl"))
    assert read([path], ReadOptions(format="jsonl")).n_cases == 50


def test_where_takes_some_cases_and_says_when_there_are_none(tmp_path):
    rows = [{"id": i, "kind": "ab"[i % 2], "outputs": ["x"], "reference": "x"} for i in range(6)]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    assert read([path], ReadOptions(where={"kind": "a"}, keep=("kind",))).n_cases == 3
    with pytest.raises(InputError, match="no case has kind=c"):
        read([path], ReadOptions(where={"kind": "c"}, keep=("kind",)))
    assert kofn.score(str(path), where={"kind": "b"}).n_cases == 3


def test_every_importer_is_one_with_a_name_and_a_line():
    from kofn.registry import importers

    for name, one in importers().items():
        assert isinstance(one, Importer)
        assert one.name == name
        assert one.what
        assert "\n" not in one.what
