"""Keys and passwords are in nothing that kofn writes, prints or serves, whatever a server does with them.

A loopback server repeats every header and the whole address it was asked with, in its errors and in what its model
says. Every verb is run against it with secrets in each place where somebody may put one. Then every byte of every file
is searched, packed ones unpacked, for each secret as it is, in base64 and quoted.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import sqlite3
import subprocess
import sys
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl
import pytest
from tests.viewer.serving import ask, served

from kofn.importers.sources import zstd_module

SECRETS = {
    "OPENAI_API_KEY": "sk-openai/7f3a+91c4e2b8",
    "ANTHROPIC_API_KEY": "sk-ant-55e0c1d97a36",
    "KOFN_API_KEY": "sk-kofn/0b6d+2f8e4c1a",
    "HF_TOKEN": "hf_Qm3v8TzX1bN6pK4s",
    "AWS_SECRET_ACCESS_KEY": "wJalr/K7MDENG+bPxRfi",
    "AWS_SESSION_TOKEN": "FwoGZXIvYXdzEJr4242",
    "WANDB_API_KEY": "wandb-90817263544536",
    "MLFLOW_TRACKING_PASSWORD": "mlflow-pass-66778899",
}
PASSWORD = "hunter/22+Xyzzy"  # noqa: S105 - of nobody
QUERY = "sig-4f5e6d7c8b9a"
BETWEEN = b"\n=-=-=\n"
# every command as `kofn` would run it, one after the other in one process: starting Python is most of what each costs
ALL_IN_ONE = f"""
import json, sys
from pathlib import Path
from kofn.cli import main
commands, codes = json.load(sys.stdin), []
for number, command in enumerate(commands):
    sys.argv = ["kofn", *command]
    try:
        main()
        codes.append(0)
    except SystemExit as left:
        codes.append(left.code or 0)
    if number < len(commands) - 1:
        for stream in (sys.stdout, sys.stderr):
            stream.write({BETWEEN.decode()!r})
            stream.flush()
Path("codes.json").write_text(json.dumps(codes))
"""
EVERY = [*SECRETS.values(), PASSWORD, QUERY]


def forms(secret: str) -> set[bytes]:
    """As it is, quoted, in base64 at any offset, and as JSON may write it."""
    found = {secret.encode(), quote(secret, safe="").encode(), secret.replace("/", "\\/").encode()}
    for before in (b"", b"a", b"ab"):
        encoded = base64.b64encode(before + secret.encode())
        found.add(encoded[4 if before else 0 : -4])
    return found


def leaks(data: bytes) -> list[str]:
    """The secrets in these bytes."""
    return [secret for secret in EVERY for form in forms(secret) if form in data]


class Echo(BaseHTTPRequestHandler):
    """Repeats what it is told: as what a model says, as an error where the model is called so, as a file."""

    def _echo(self) -> str:
        return f"asked {self.path} with " + json.dumps(dict(self.headers.items()))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        said = f"{self._echo()} The answer is 4. Verdict: pass"
        if "messages" in self.path:
            content = {"content": [{"type": "text", "text": said}], "stop_reason": "end_turn", "model": "m"}
        else:
            content = {"choices": [{"message": {"content": said, "reasoning_content": said}, "finish_reason": "stop"}]}
        status = {"broken": 500, "refused": 401, "odd": 400}.get(body["model"], 200)
        self._answer(status, json.dumps(content if status == 200 else {"error": {"message": said}}).encode())

    def do_GET(self) -> None:
        found = self.path.startswith("/outputs")
        row = {"id": "q", "reference": "4", "outputs": ["4", "5"]}
        self._answer(200 if found else 500, json.dumps(row).encode() if found else self._echo().encode())

    do_HEAD = do_GET  # noqa: N815 - as above

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing on stderr."""


@pytest.fixture(scope="module")
def server():
    echo = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=echo.serve_forever, daemon=True).start()
    yield echo.server_address[1]
    echo.shutdown()
    echo.server_close()


@pytest.fixture(scope="module")
def written(server, tmp_path_factory):
    """A folder in which every verb has been at work, and what each of them printed."""
    folder = tmp_path_factory.mktemp("secrets")
    for name in ("tmp", "home", "work"):
        (folder / name).mkdir()
    work = folder / "work"
    (work / "outputs.jsonl").write_text('{"id": "q1", "input": "2+2?", "reference": "4", "outputs": ["4", "5"]}\n')
    login = f"anna:{quote(PASSWORD, safe='')}@127.0.0.1:{server}"
    plain = f"http://127.0.0.1:{server}/v1"
    hidden = f"http://{login}/v1?api_key={QUERY}"
    models = {
        "key": f"openai:m@{plain}",
        "login": f"openai:m@{hidden}",
        "theirs": "openai:m",  # OPENAI_BASE_URL: the vendor's own key is sent
        "anthropic": f"anthropic:m@{hidden}",
    }
    failing = [f"openai:broken@{hidden}", f"openai:refused@{plain}", f"openai:odd@{hidden}"]
    few = ["--limit", "1", "--repeats", "2", "--retries", "1"]
    commands = [
        *(["run", "starter", "-m", model, *few, "--cache", "--out", f"run-{name}"] for name, model in models.items()),
        *(["run", "starter", "-m", model, *few, "--out", f"bad-{i}"] for i, model in enumerate(failing)),
        ["judge", "outputs.jsonl", "--rubric", "correctness", "-m", models["login"], "--out", "judged"],
        ["judge", "run-key", "--rubric", "correctness", "-m", failing[1], "--retries", "1"],
        ["score", f"http://{login}/outputs.jsonl?X-Amz-Signature={QUERY}", "--out", "scored"],
        ["score", f"http://{login}/nothing.jsonl?X-Amz-Signature={QUERY}"],
        ["score", "outputs.jsonl", "--out", "sunk", "--sink", f"mlflow:http://{login}?token={QUERY}"],
        ["verify", "none", "--engine", "ray", "--shared", f"nosuch://{login}/x?token={QUERY}"],
        ["export", "run-login", "--to", "exported.parquet"],
        ["compare", "run-key", "run-login", "--html", "compare.html"],
        ["curve", "run-key", "--html", "curve.html"],
        ["report", "run-login", "--html", "-o", "again.html"],
        ["extract-audit", "run-key", "--model", models["login"], "--store", "read"],
        ["trend", "."],
        ["doctor", "--json"],
    ]
    environment = {
        **{k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")},
        **SECRETS,
        "OPENAI_BASE_URL": plain,
        "TMPDIR": str(folder / "tmp"),
        "HOME": str(folder / "home"),
        "XDG_CACHE_HOME": str(folder / "home" / ".cache"),
        "KOFN_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(str(Path(p).resolve()) for p in sys.path if p),
    }
    done = subprocess.run(
        [sys.executable, "-c", ALL_IN_ONE],
        input=json.dumps(commands).encode(),
        cwd=work,
        env=environment,
        capture_output=True,
        timeout=300,
        check=True,
    )
    codes = json.loads((work / "codes.json").read_text())
    parts = zip(done.stdout.split(BETWEEN), done.stderr.split(BETWEEN), strict=True)
    printed = {" ".join(c): (code, out + err) for c, code, (out, err) in zip(commands, codes, parts, strict=True)}
    return folder, printed


def unpacked(path: Path) -> bytes:
    """A file as it is and, where it is packed, what is in it."""
    raw = path.read_bytes()
    return raw + b"".join(_inside(raw, path))


def _inside(raw: bytes, path: Path) -> list[bytes]:
    if raw.startswith(b"PAR1"):
        frame = pl.read_parquet(io.BytesIO(raw))
        return [repr(frame.rows()).encode(), repr(pl.read_parquet_metadata(io.BytesIO(raw))).encode()]
    if raw.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            return [archive.read(name) for name in archive.namelist()]
    if raw.startswith(b"\x1f\x8b"):
        return [gzip.decompress(raw)]
    if raw.startswith(b"SQLite format 3"):
        with sqlite3.connect(path) as database:
            names = [name for (name,) in database.execute("select name from sqlite_master where type='table'")]
            rows = [row for name in names for row in database.execute(f"select * from {name}")]  # noqa: S608 - its own
        cells = [cell for row in rows for cell in row]
        return [c if isinstance(c, bytes) else str(c).encode() for c in cells] + [_zstd(c) for c in cells]
    if path.suffix == ".html":
        return [
            _zstd(base64.b64decode(part)) for part in raw.split(b'"') if len(part) > 100 and part.startswith(b"H4sI")
        ]
    return []


def _zstd(cell: Any) -> bytes:
    if not isinstance(cell, bytes):
        return b""
    if cell.startswith(b"\x1f\x8b"):
        return gzip.decompress(cell)
    if cell.startswith(b"\x28\xb5\x2f\xfd"):
        return zstd_module().decompress(cell)
    return b""


def test_the_verbs_did_their_work_and_the_server_saw_the_secrets(written):
    """Else the tests below would find nothing because nothing was done."""
    folder, printed = written
    for name in ("run-key", "run-login", "run-theirs", "run-anthropic", "judged", "scored", "exported.parquet"):
        assert (folder / "work" / name).exists(), printed
    for name in ("compare.html", "curve.html", "again.html", "read"):
        assert (folder / "work" / name).exists(), printed
    text = json.dumps(pl.read_parquet(folder / "work" / "run-login" / "candidates.parquet").to_dicts())
    assert "asked /v1/chat/completions" in text, "the model repeats what it was asked with"
    assert "***" in text


def test_no_file_holds_a_secret(written):
    folder, _ = written
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 40
    found = {str(path.relative_to(folder)): leaks(unpacked(path)) for path in files}
    assert not {name: secrets for name, secrets in found.items() if secrets}


def test_nothing_printed_holds_a_secret_and_no_verb_fails_with_a_traceback(written):
    _, printed = written
    for command, (code, said) in printed.items():
        assert b"Traceback" not in said, (command, said.decode())
        assert code in (0, 1, 2, 3), (command, said.decode())
        assert not leaks(said), (command, said.decode())


def test_no_page_of_the_viewer_holds_a_secret(written):
    folder, _ = written
    with served(folder / "work") as base:
        runs = [p.name for p in sorted((folder / "work").iterdir()) if (p / "run.json").exists()]
        pages = [
            "/",
            "/trend",
            *(
                f"/run/{name}{page}"
                for name in runs
                for page in ("", "/-/charts", "/-/best", "/-/audit", "?show=failed")
            ),
        ]
        answers = {page: ask(base, page) for page in pages}
    assert sum(answer.status == 200 for answer in answers.values()) > 3 * len(runs)
    for page, answer in answers.items():
        assert not leaks(answer.body), page


def test_what_looks_for_secrets_finds_them():
    for secret in EVERY:
        for said in (secret, quote(secret, safe=""), base64.b64encode(f"anna:{secret}".encode()).decode()):
            assert leaks(f"x{said}y".encode()), said
