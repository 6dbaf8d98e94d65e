"""MLflow and Weights & Biases themselves: a real server on this machine, real files, looked at without kofn."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from tests.peers import PYTHON, ROOT, needs_peer, run_peer
from tests.waiting import LONGEST, wait_until

import kofn

if TYPE_CHECKING:
    from pathlib import Path

OFFLINE = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "WANDB_MODE": "offline", "WANDB_SILENT": "true"}
OUTPUTS = ROOT / "examples" / "arithmetic.jsonl"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of an MLflow server with a database and artifacts of its own."""
    folder, port = tmp_path_factory.mktemp("mlflow"), free_port()
    command = [PYTHON, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    stores = ["--backend-store-uri", f"sqlite:///{folder}/m.db", "--artifacts-destination", str(folder / "artifacts")]
    env = {**os.environ, **OFFLINE, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    log = (folder / "log").open("w")
    process = subprocess.Popen(
        [*command, *stores], cwd=folder, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        _wait(f"http://127.0.0.1:{port}/health", process, folder / "log")
        yield f"http://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its own group: the server and its worker
        process.wait()
        log.close()


def _wait(url: str, process: subprocess.Popen, log: Path) -> None:
    def answers() -> bool:
        assert process.poll() is None, f"no server: {log.read_text()[-2000:]}"
        with contextlib.suppress(URLError, OSError):
            urlopen(url, timeout=5).close()  # noqa: S310 - our own server
            return True
        return False

    # making its tables takes most of ten seconds, and more on a busy machine
    wait_until(answers, lambda: f"no server: {log.read_text()[-2000:]}", 3 * LONGEST)


def ask(server: str, path: str, body: dict | None = None) -> dict:
    """MLflow's REST API, without its package."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"{server}/api/2.0/mlflow/{path}", data, {"Content-Type": "application/json"})  # noqa: S310 - as above
    with urlopen(request, timeout=LONGEST) as reply:  # noqa: S310 - as above
        return dict(json.loads(reply.read()))


def runs_there(server: str, experiment: str) -> list[dict]:
    found = ask(server, f"experiments/get-by-name?experiment_name={experiment}")["experiment"]
    body = {"experiment_ids": [found["experiment_id"]]}
    return list(ask(server, "runs/search", body).get("runs", []))


@pytest.mark.peers
@needs_peer("mlflow")
def test_mlflow_has_the_run_once_with_its_numbers_files_and_tags(server, tmp_path):
    out = tmp_path / "first"
    options = ["--by", "kind", "-a", "any_pass", "-a", "pass@2", "--out", out]
    run_peer("-m", "kofn", "score", OUTPUTS, *options, "--sink", f"mlflow:{server}", **OFFLINE)
    stored = kofn.load_run(out)
    [there] = runs_there(server, "arithmetic")
    assert (there["info"]["run_name"], there["info"]["status"]) == ("first", "FINISHED")
    metrics = {m["key"]: m["value"] for m in there["data"]["metrics"]}
    e = stored.result.get("pass@2")
    assert [metrics[f"numeric.pass_at_2{part}"] for part in ("", ".low", ".high", ".n")] == [e.point, e.low, e.high, 60]
    assert metrics["numeric.any_pass.kind.one_step"] == stored.result.get("any_pass", segment="kind=one step").point
    params = {p["key"]: p["value"] for p in there["data"]["params"]}
    assert (params["task"], params["extractor"], params["by"]) == ("arithmetic", "number", "kind")
    tags = {t["key"]: t["value"] for t in there["data"]["tags"]}
    assert tags["kofn.version"] == kofn.__version__
    assert tags.get("mlflow.source.git.commit") == tags.get("kofn.git_commit")
    files = ask(server, f"artifacts/list?run_id={there['info']['run_id']}")["files"]
    assert {f["path"] for f in files} == {"report.html", "evaluation.json", "run.json"}

    # the same run again, with a password in the address: nothing is there twice, and nobody sees the password
    secret = f"mlflow:{server.replace('//', '//me:s3cret@')}"
    said = _run_verb("report", out, "--sink", secret)
    assert "already in mlflow:http://127.0.0.1" in said
    assert "s3cret" not in said
    assert len(runs_there(server, "arithmetic")) == 1

    # one that was cut off is completed
    run_id = there["info"]["run_id"]
    ask(server, "runs/update", {"run_id": run_id, "status": "RUNNING"})
    said = _run_verb("report", out, "--sink", f"{secret}?artifacts=all&name=another")
    assert "sent to mlflow:http://127.0.0.1" in said
    assert "s3cret" not in said
    [there] = runs_there(server, "arithmetic")
    assert (there["info"]["run_id"], there["info"]["status"]) == (run_id, "FINISHED")
    files = ask(server, f"artifacts/list?run_id={run_id}")["files"]
    assert "candidates.parquet" in {f["path"] for f in files}

    # another experiment, by name
    _run_verb("report", out, "--sink", f"mlflow:{server}?experiment=nightly&artifacts=none")
    [nightly] = runs_there(server, "nightly")
    assert ask(server, f"artifacts/list?run_id={nightly['info']['run_id']}").get("files", []) == []


def _run_verb(*arguments: object) -> str:
    """Both outputs of a verb in the peers' environment."""
    env = {**os.environ, **OFFLINE, "PYTHONPATH": str(ROOT / "src")}
    command = [str(PYTHON), "-m", "kofn", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.peers
@needs_peer("mlflow")
def test_a_server_that_is_not_there_ends_with_3_and_the_run_is_kept(tmp_path):
    env = {**os.environ, **OFFLINE, "PYTHONPATH": str(ROOT / "src"), "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    out = tmp_path / "run"
    sink = f"mlflow:http://me:s3cret@127.0.0.1:{free_port()}"
    command = [str(PYTHON), "-m", "kofn", "score", str(OUTPUTS), "--out", str(out), "--sink", sink]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False, timeout=300)
    assert done.returncode == 3
    assert f"kofn report {out} --sink 'mlflow:http://127.0.0.1:" in done.stderr
    assert "Traceback" not in done.stderr
    assert "s3cret" not in done.stdout + done.stderr
    assert kofn.load_run(out).result.n_cases == 60


@pytest.mark.peers
@needs_peer("mlflow")
def test_mlflow_keeps_runs_in_a_database_without_a_server(tmp_path):
    out, database = tmp_path / "run", tmp_path / "m.db"
    run_peer(
        *("-m", "kofn", "score", OUTPUTS, "-a", "mean", "--out", out, "--sink", f"mlflow:sqlite:///{database}"),
        cwd=tmp_path,
        **OFFLINE,
    )
    import sqlite3

    with contextlib.closing(sqlite3.connect(database)) as rows:
        found = dict(rows.execute("select key, value from metrics"))
    assert found["numeric.mean"] == kofn.load_run(out).result.get("mean").point


@pytest.mark.peers
@needs_peer("wandb")
def test_weights_and_biases_keeps_a_run_offline_and_asks_no_network(tmp_path):
    out = tmp_path / "run"
    arguments = ("-m", "kofn", "score", OUTPUTS, "-a", "any_pass", "--out", out, "--sink", "wandb:team/answers")
    # an address nobody answers: whatever reached for it would fail
    run_peer(*arguments, cwd=tmp_path, **OFFLINE, WANDB_BASE_URL="http://127.0.0.1:9")
    [kept] = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    data = kept.read_bytes()
    for part in (b"numeric.any_pass", b"extractor", b"kofn.version", b"report.html", b"arithmetic", b"evaluation"):
        assert part in data, part
    digest = kofn.integrations.sinks.tracker_run_of(kofn.load_run(out)).digest
    assert digest[:24] in kept.name
