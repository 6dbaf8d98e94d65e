"""Design and test cases: apart, seeded, stable, recorded."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import kofn
from kofn.cli import kofn as command
from kofn.errors import InputError
from kofn.scoring.splits import Split


@given(st.lists(st.text(min_size=1), unique=True, max_size=50), st.floats(0.05, 0.95), st.integers(0, 9))
def test_every_case_is_in_one_part_and_stays_there_whatever_else_there_is(names, share, seed):
    design, test = (Split(part=part, share=share, seed=seed).mask(names) for part in ("design", "test"))
    assert (design ^ test).all()
    alone = [bool(Split(part="design", share=share, seed=seed).mask([name])[0]) for name in names]
    assert alone == design.tolist()


def test_cases_of_a_cluster_stay_together(tmp_path):
    rows = [{"id": f"q{i}", "cluster": f"c{i // 5}", "outputs": ["a"], "passes": [1]} for i in range(100)]
    parts = [kofn.score(rows, split=part) for part in ("design", "test")]
    clusters = [set(part.table.cases["cluster"]) for part in parts]
    assert not clusters[0] & clusters[1]
    assert sum(part.n_cases for part in parts) == 100


def test_the_split_is_in_the_manifest(tmp_path):
    rows = [{"id": f"q{i}", "outputs": [{"text": "a", "pass": 1}]} for i in range(40)]
    (tmp_path / "f.jsonl").write_text("\n".join(map(json.dumps, rows)))
    args = ["score", str(tmp_path / "f.jsonl"), "--split", "test:0.3:7", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(command, args)
    assert done.exit_code == 0, done.output
    run = kofn.load_run(tmp_path / "run")
    assert run.manifest["options"]["split"] == "test:0.3:7"
    kept = Split.parse("test:0.3:7").mask([f"q{i}" for i in range(40)])
    assert run.result.n_cases == int(kept.sum())


@pytest.mark.parametrize("text", ["tset", "test:2", "test:x", "test:0.5:1:1", "design:0"])
def test_a_wrong_split_is_one_line(text):
    with pytest.raises(InputError, match="split"):
        Split.parse(text)
