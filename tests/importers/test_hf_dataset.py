"""Folders that hold a Hugging Face dataset: saved by the real package, or laid out as on the hub."""

from __future__ import annotations

import json
import shutil

import polars as pl
import pytest
from tests.peers import needs_peer, run_peer

import kofn
from kofn.errors import InputError
from kofn.importers import importer_of, read
from kofn.importers.base import ReadOptions
from kofn.importers.recognition import Peek

LONG = [
    {"id": f"q{i}", "repeat": r, "output": f"The answer is {i + r}.", "reference": str(i), "correct": r == 0}
    for i in range(6)
    for r in range(2)
]
WIDE = [
    {"id": f"q{i}", "reference": str(i), "outputs": [f"It is {i}.", "It is 3."], "kind": "ab"[i % 2]} for i in range(4)
]

SAVE = """
import json, sys
from pathlib import Path
from datasets import Dataset, DatasetDict
root, long, wide = Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])
Dataset.from_list(wide).save_to_disk(root / "one")
Dataset.from_list(long).select([0, 1, 4, 5]).save_to_disk(root / "chosen")
both = DatasetDict({"train": Dataset.from_list(wide), "test": Dataset.from_list(long)})
both.save_to_disk(root / "dict", num_shards={"train": 1, "test": 3})
for name, split in both.items():
    split.to_parquet(root / "hub" / "data" / f"{name}-00000-of-00001.parquet")
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The folders that the real package writes."""
    root = tmp_path_factory.mktemp("saved")
    (root / "hub" / "data").mkdir(parents=True)
    run_peer("-c", SAVE, root, json.dumps(LONG), json.dumps(WIDE))
    return root


def copied(saved, name, tmp_path):
    shutil.copytree(saved / name, tmp_path / name)
    return tmp_path / name


@needs_peer("datasets")
def test_a_saved_dataset_is_read_as_its_rows_are(saved):
    result = kofn.score(saved / "one", aggregate=["mean", "any_pass"])
    again = kofn.score(WIDE, aggregate=["mean", "any_pass"])
    assert (result.n_cases, result.n_candidates) == (4, 8)
    assert [e.point for e in result.estimates] == [e.point for e in again.estimates]
    assert result.understood["form"] == "Hugging Face dataset, wide"


@needs_peer("datasets")
def test_chosen_rows_are_the_ones_that_were_saved(saved):
    assert read([saved / "chosen"]).cases["case_id"].to_list() == ["q0", "q2"]


@needs_peer("datasets")
def test_of_several_splits_test_is_read_and_told_and_another_can_be_asked_for(saved):
    table = read([saved / "dict"])
    assert (table.n_cases, table.n_candidates) == (6, 12)
    assert tuple(map(str, table.notes)) == ("the split test is read, of test, train: --where split=NAME reads another",)
    assert table.origin == {"tool": "datasets", "split": "test"}
    other = read([saved / "dict"], ReadOptions(where={"split": "train"}))
    assert (other.n_cases, other.n_candidates, other.notes) == (4, 8, ())
    some = read([saved / "dict"], ReadOptions(where={"split": "train", "kind": "a"}))
    assert some.cases["case_id"].to_list() == ["q0", "q2"]
    with pytest.raises(InputError, match="no split 'dev': it has test, train"):
        read([saved / "dict"], ReadOptions(where={"split": "dev"}))


@needs_peer("datasets")
def test_shards_of_the_hub_are_read_as_the_saved_ones(saved):
    assert kofn.score(saved / "hub", aggregate="mean").get("mean").point == 0.5
    assert read([saved / "hub"]).candidates.equals(read([saved / "dict"]).candidates)


@needs_peer("datasets")
def test_one_arrow_file_is_read_too(saved):
    assert read([saved / "one" / "data-00000-of-00001.arrow"]).n_candidates == 8


@needs_peer("datasets")
def test_a_shard_that_is_not_there_is_told_and_none_at_all_refused(saved, tmp_path):
    folder = copied(saved, "dict", tmp_path)
    (folder / "test" / "data-00001-of-00003.arrow").unlink()
    table = read([folder])
    assert table.n_candidates == 8
    assert str(table.notes[0]) == "data-00001-of-00003.arrow is not there: its rows are missing"
    for path in (folder / "test").glob("*.arrow"):
        path.unlink()
    with pytest.raises(InputError, match=r"is not there, which state\.json names"):
        read([folder])


@needs_peer("datasets")
@pytest.mark.parametrize("spoil", ["a cut shard", "a cut state", "an index", "no splits"])
def test_a_spoiled_folder_is_refused_in_one_line(spoil, saved, tmp_path):
    folder = copied(saved, "dict", tmp_path)
    state, shard = folder / "test" / "state.json", folder / "test" / "data-00000-of-00003.arrow"
    if spoil == "a cut shard":
        shard.write_bytes(shard.read_bytes()[:300])
        said = "data-00000-of-00003.arrow: not readable as Arrow"
    elif spoil == "a cut state":
        state.write_bytes(state.read_bytes()[:20])
        said = "state.json is not readable"
    elif spoil == "an index":
        state.write_text(
            json.dumps({**json.loads(state.read_text()), "_indices_data_files": [{"filename": "i.arrow"}]})
        )
        said = "rows chosen by an index file"
    else:
        (folder / "dataset_dict.json").write_text('{"splits": ["gone"]}')
        said = "none of them is there"
    with pytest.raises(InputError) as problem:
        read([folder])
    assert said in str(problem.value)
    assert str(folder) in str(problem.value)
    assert "\n" not in str(problem.value)


def shards(folder, **splits):
    for name, rows in splits.items():
        path = folder / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pl.DataFrame(rows).write_parquet(path)
    return folder


@pytest.mark.parametrize("layout", ["{}", "data/{}-00000-of-00001", "{}/0000", "default/{}-00000-of-00001-0a1b2c"])
def test_layouts_of_the_hub_are_recognised_by_what_they_hold(layout, tmp_path):
    folder = tmp_path / "set"
    shards(folder, **{layout.format("train"): LONG[:4], layout.format("validation"): LONG})
    (folder / "README.md").write_text("a card")
    assert importer_of(Peek(folder)).name == "hf_dataset"
    table = read([folder])
    assert table.n_candidates == 12
    assert table.origin["split"] == "validation"


def test_several_configurations_are_refused_by_name_and_one_of_them_is_read(tmp_path):
    folder = shards(tmp_path / "set", **{"main/test-00000-of-00001": LONG, "socratic/test-00000-of-00001": LONG})
    with pytest.raises(InputError, match=r"several configurations \(main, socratic\): give the folder of one"):
        read([folder])
    assert read([folder / "main"]).n_candidates == 12


def test_shards_that_say_there_are_more_of_them_are_told(tmp_path):
    folder = shards(tmp_path / "set", **{"test-00000-of-00003": LONG[:4], "test-00002-of-00003": LONG[4:]})
    table = read([folder])
    assert table.n_candidates == 12
    assert tuple(map(str, table.notes)) == ("2 of 3 shards are there: the rows of the others are missing",)


def test_a_damaged_shard_is_named(tmp_path):
    folder = shards(tmp_path / "set", **{"test-00000-of-00001": LONG})
    path = folder / "test-00000-of-00001.parquet"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match=r"test-00000-of-00001\.parquet: not readable as Parquet"):
        read([folder])


def test_a_folder_of_other_files_is_nobodys(tmp_path):
    shards(tmp_path / "set", monday=LONG, tuesday=LONG)
    assert importer_of(Peek(tmp_path / "set")) is None
    with pytest.raises(InputError, match="give its files"):
        read([tmp_path / "set"])


def test_a_split_is_also_a_column_where_there_is_one(tmp_path):
    rows = [{**row, "split": "easy" if row["id"] < "q3" else "hard"} for row in LONG]
    folder = shards(tmp_path / "set", test=rows)
    assert read([folder], ReadOptions(where={"split": "hard"}, keep=("split",))).n_cases == 3
