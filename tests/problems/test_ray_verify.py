"""Verification on a Ray cluster gives what it gives on this machine, also when a node is lost in the middle."""

from __future__ import annotations

import json
import os
import re

import pytest
from tests.programs import need_sandbox, problem_in, submission_in
from tests.shared import ROOT

from kofn.parallel import engine
from kofn.problems import load_problem
from kofn.problems.case_store import ExecutionCount
from kofn.problems.verification import VerifyOptions, verify

pytest.importorskip("ray", reason="ray is not installed")

NODE = {"num_cpus": 1, "object_store_memory": 80_000_000}


@pytest.fixture(scope="module")
def cluster():
    need_sandbox()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    made.add_node(**NODE)
    made.add_node(**NODE)
    yield made
    made.shutdown()


@pytest.fixture(scope="module")
def ray_engine(cluster):
    with engine("ray", ray_address=cluster.address) as made:
        yield made


def plain(found):
    """Everything of a verification but times and memory."""
    executions = []
    for one in found.submission_results:
        body = one.results.model_dump(mode="json")
        for part in (body, *body["reports"], *body["group_outcomes"].values()):
            part.pop("timestamp", None)
            part.pop("duration", None)
        for report in body["reports"]:
            report["case"].pop("peak_memory_mb", None)
            report["case"].pop("server_log_ends", None)
        text = re.sub(r"created\W+[0-9.]+", "created", json.dumps(body))  # what the server itself says of the time
        executions.append((one.submission.name, one.checkpoint.name, json.loads(text)))
    return executions


@pytest.mark.cluster
@pytest.mark.parametrize("name", ["ledger", "notes"])
def test_local_and_ray_engines_give_the_same(ray_engine, name):
    folder = ROOT / "examples" / "problems" / name
    problem = load_problem(folder)
    paths = sorted((folder / "submissions").iterdir())
    here = verify(problem, paths, problem.checkpoints, options=VerifyOptions(workers=2))
    there = verify(problem, paths, problem.checkpoints, engine=ray_engine)
    assert plain(here) == plain(there)
    assert here.n_executions == there.n_executions


@pytest.mark.slow
def test_a_node_lost_in_the_middle_loses_and_doubles_nothing(ray_engine, cluster, tmp_path):
    cases = [{"id": f"c{i}", "args": [str(i)], "expected": {"output": str(i * i)}} for i in range(60)]
    config = {
        "name": "squares",
        "entry": "python main.py",
        "checkpoints": {"one": {"groups": {"g": {"type": "Core", "cases": cases}}}},
    }
    problem = load_problem(problem_in(tmp_path, json.dumps(config)))
    code = "import sys, time; time.sleep(0.15); n = int(sys.argv[1]); print(n * n if n % 9 else 'wrong')"
    submission = submission_in(tmp_path, code)
    node = cluster.add_node(**NODE)
    seen = []

    class NodeRemoved(ExecutionCount):
        def on_case(self, outcome):
            super().on_case(outcome)
            seen.append(outcome.key)
            if len(seen) == 12:
                cluster.remove_node(node, allow_graceful=False)

    there = verify(
        problem, [submission], problem.checkpoints, engine=ray_engine, out=tmp_path / "out", progress=NodeRemoved()
    )
    here = verify(problem, [submission], problem.checkpoints, options=VerifyOptions(workers=2))
    assert plain(here) == plain(there)
    assert len(seen) == len(set(seen)) == 60
    again = verify(problem, [submission], problem.checkpoints, options=VerifyOptions(workers=1), out=tmp_path / "out")
    assert (again.n_executions, again.n_reused) == (0, 60)
