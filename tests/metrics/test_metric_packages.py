"""Metrics of other packages: functions of references and predictions, `evaluate` modules, scikit-learn, sacrebleu."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest
from tests.peers import needs_peer, run_peer

import kofn
from kofn.errors import InputError
from kofn.metrics import MetricConfig, as_metric, call_metric, grade, metric_name, normalise, process_repeats
from kofn.metrics.outcomes import call_style

ROWS = [
    {"id": "a", "reference": "cat", "outputs": ["cat", "dog", "cat"]},
    {"id": "b", "reference": "dog", "outputs": ["cat", "dog", None]},
]


def hits(references, predictions):
    assert isinstance(references, list)
    assert isinstance(predictions, list)
    assert len(references) == len(predictions) == 1
    return sum(p == r for p, r in zip(predictions, references, strict=True)) / len(predictions)


class Module:
    """Shaped as `evaluate.EvaluationModule`: not callable, scores through `compute`."""

    name = "hits"

    def __init__(self, key="hits"):
        self.key = key

    def compute(self, *, predictions=None, references=None, **_):
        return {self.key: np.float64(hits(references, predictions)), "n": len(predictions)}


class Scored(NamedTuple):
    score: float
    bp: float = 1.0


STYLES = {
    "keywords": lambda references, predictions: hits(references, predictions),
    "keywords the other way": lambda predictions, references: hits(references, predictions),
    "keyword only": lambda *, references, predictions, **_: hits(references, predictions),
    "by place": lambda references, predictions, /: hits(references, predictions),
    "by place the other way": lambda predictions, references, /: hits(references, predictions),
    "scikit-learn": lambda y_true, y_pred, *, _normalize=True: hits(y_true, y_pred),
    "other words": lambda hypotheses, targets: hits(targets, hypotheses),
    "an object with a score": lambda references, predictions: type("S", (), {"score": hits(references, predictions)})(),
    "a list a row": lambda references, predictions: [hits(references, predictions)],
    "an array": lambda references, predictions: np.array([hits(references, predictions)]),
    "a NumPy number": lambda references, predictions: np.float32(hits(references, predictions)),
    "a module": Module(),
    "its method": Module().compute,
}


@pytest.mark.parametrize("style", STYLES)
def test_every_style_grades_each_candidate(style):
    result = kofn.score(ROWS, metric=STYLES[style], aggregate=["mean", "any_pass"], extract="text")
    main = result.estimates[0]
    assert main.point == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert result.get("any_pass", metric=main.metric).point == 1.0
    assert result.n_missing == 1, "a failed call is not graded"


@pytest.mark.parametrize("style", STYLES)
def test_every_style_works_in_a_metric_config(style):
    config = MetricConfig("hits", STYLES[style], repeat_aggregation_fn="mean")
    result = process_repeats(config, ["cat", "dog"], "cat")
    assert result["hits"] == 0.5
    assert result["hits_repeats"] == [1.0, 0.0]


def test_a_module_has_the_name_and_traits_it_says():
    module = Module()
    module.higher_is_better = False
    assert metric_name(as_metric(module)) == "hits"
    result = kofn.score(ROWS, metric=module, extract="text", aggregate="max")
    assert result.scored[0].metric == "hits"
    assert result.scored[0].sets.higher_is_better is False
    assert [e.metric for e in result.estimates] == ["hits", "hits.n"]


def test_each_pair_is_asked_once_however_often_it_is_there():
    calls = []

    def counted(references, predictions):
        calls.append((references, predictions))
        return hits(references, predictions)

    kofn.score(
        ROWS * 1 + [{**row, "id": row["id"] * 2} for row in ROWS], metric=counted, extract="text", aggregate="mean"
    )
    assert sorted(calls) == [([r], [p]) for r, p in [("cat", "cat"), ("cat", "dog"), ("dog", "cat"), ("dog", "dog")]]


def test_of_several_references_the_best_counts():
    assert grade(hits, "dog", ["cat", "dog"]).value == 1.0


def test_references_declared_as_lists_of_lists_get_them():
    def nested(hypotheses: list[str], references: list[list[str]]):
        return references == [["r"]] and hypotheses == ["p"]

    assert call_style(nested).nested
    assert call_metric(nested, "p", "r") is True


@pytest.mark.parametrize("key", ["hits", "share"])
def test_a_key_that_is_not_the_metrics_name_is_taken_with_one_warning_that_names_it(key, recwarn):
    result = kofn.score(ROWS, metric=Module(key), extract="text", aggregate="mean")
    said = "metric hits returned a mapping without 'hits': its first entry, 'share', is the score"
    assert list(map(str, result.warnings)).count(said) == (key == "share")
    assert not [w for w in recwarn if "is taken" in str(w.message)], "said with the result, not on standard error"


def test_objects_count_as_the_number_in_their_score():
    assert normalise(Scored(26.8), "bleu").value == 26.8
    assert normalise({"bleu": Scored(26.8), "note": "x"}, "bleu").value == 26.8
    with pytest.raises(InputError, match="metric m returned"):
        normalise(type("S", (), {"score": "high"})(), "m")


def test_scores_beyond_1_are_told_to_need_a_threshold():
    def bleu(references, predictions):
        return 100.0 * hits(references, predictions)

    said = "bleu goes from 0 to 100: a pass is at least 1.0; --threshold sets what passes"
    assert said in map(str, kofn.score(ROWS, metric=bleu, extract="text", aggregate="mean").warnings)
    assert said not in map(str, kofn.score(ROWS, metric=bleu, extract="text", aggregate="mean", threshold=50).warnings)


@pytest.mark.parametrize("thing", [object(), 3, {"compute": 1}])
def test_what_is_no_metric_is_refused_by_its_type(thing):
    with pytest.raises(InputError, match=f"metric: expected a name or a callable, not {type(thing).__name__}"):
        kofn.score(ROWS, metric=[thing])


def test_a_failing_metric_is_named_with_what_it_was_given():
    def broken(y_true, y_pred):
        raise ValueError("dtype='numeric' is not compatible")

    with pytest.raises(InputError, match="metric broken failed on 'cat' against 'cat': ValueError: dtype"):
        kofn.score(ROWS, metric=broken, extract="text")


@pytest.mark.commands
def test_modules_and_settings_are_named_on_the_command_line(tmp_path):
    (tmp_path / "mine.py").write_text(
        "class Module:\n"
        "    name = 'near'\n"
        "    def compute(self, *, predictions=None, references=None, off=0):\n"
        "        return {'near': float(abs(int(predictions[0]) - int(references[0])) <= off)}\n"
        "near = Module()\n"
    )
    (tmp_path / "o.jsonl").write_text(json.dumps({"id": 1, "reference": "4", "outputs": ["4", "5", "7"]}) + "\n")
    for spec, point in [("mine:near", 1 / 3), ("mine:near(off=1)", 2 / 3), ("mine:Module", 1 / 3)]:
        done = subprocess.run(
            [sys.executable, "-m", "kofn", "score", "o.jsonl", "--metric", spec, "-a", "mean", "--json"],
            capture_output=True, text=True, check=True, cwd=tmp_path,
        )  # fmt: skip
        [estimate] = json.loads(done.stdout)["estimates"]
        assert (estimate["metric"], estimate["point"]) == ("near", pytest.approx(point))


# ---------------------------------------------------------------------------------------------------- the real packages


def test_sacrebleu_scores_as_it_does_itself():
    sacrebleu = pytest.importorskip("sacrebleu", reason="the extra text has it")
    from sacrebleu.metrics import BLEU, CHRF

    outputs = ["the cat sat on a mat", "a cat is on the mat", "no"]
    refs = ["the cat sat on the mat", "there is a cat on the mat"]
    for reference in (refs[0], refs):
        given = [reference] if isinstance(reference, str) else reference
        rows = [{"id": 1, "reference": reference, "outputs": outputs}]
        want = {
            sacrebleu.sentence_bleu: [sacrebleu.sentence_bleu(o, given).score for o in outputs],
            sacrebleu.sentence_chrf: [sacrebleu.sentence_chrf(o, given).score for o in outputs],
            sacrebleu.corpus_bleu: [max(sacrebleu.corpus_bleu([o], [[r]]).score for r in given) for o in outputs],
            BLEU(effective_order=True): [BLEU(effective_order=True).sentence_score(o, given).score for o in outputs],
            "sacrebleu.metrics:CHRF(word_order=2)": [
                CHRF(word_order=2).sentence_score(o, given).score for o in outputs
            ],
        }
        for metric, values in want.items():
            result = kofn.score(rows, metric=metric, extract="text", aggregate="mean")
            assert result.scored[0].sets.values.tolist() == pytest.approx(values, abs=1e-12)


PEERS = """
import json, sys
import evaluate, kofn, sklearn.metrics
from pathlib import Path
rows = json.loads(sys.argv[1])
pairs = [(o, row["reference"]) for row in rows for o in row["outputs"]]
module = evaluate.load(sys.argv[2])
out = {}
for name, metric in {"module": module, "accuracy": sklearn.metrics.accuracy_score,
                     "f1": "sklearn.metrics:f1_score(average='macro')"}.items():
    result = kofn.score(rows, metric=metric, extract="text", aggregate="mean")
    out[name] = {"values": result.scored[0].sets.values.tolist(), "metrics": [s.metric for s in result.scored],
                 "point": result.estimates[0].point, "warnings": list(map(str, result.warnings))}
preds, refs = map(list, zip(*pairs))
out["theirs"] = {
    "module": module.compute(predictions=preds, references=refs)["share"],
    "accuracy": sklearn.metrics.accuracy_score(refs, preds),
    "f1": [sklearn.metrics.f1_score([r], [p], average="macro") for p, r in pairs],
}
print(json.dumps(out))
"""

SCRIPT = """
import datasets
import evaluate


class Share(evaluate.Metric):
    def _info(self):
        text = datasets.Value("string")
        return evaluate.MetricInfo(
            description="", citation="", inputs_description="",
            features=datasets.Features({"predictions": text, "references": text}),
        )

    def _compute(self, predictions, references):
        return {"share": sum(p == r for p, r in zip(predictions, references)) / len(predictions), "n": len(predictions)}
"""


@pytest.mark.peers
@needs_peer("evaluate")
@needs_peer("sklearn")
def test_evaluate_modules_and_scikit_learn_give_their_own_numbers(tmp_path):
    script = tmp_path / "share" / "share.py"
    script.parent.mkdir()
    script.write_text(SCRIPT)
    rows = [{"id": str(i), "reference": "ab"[i % 2], "outputs": ["a", "b", "a"]} for i in range(5)]
    cache = {"HF_HOME": str(tmp_path / "cache"), "HF_MODULES_CACHE": str(tmp_path / "cache" / "modules")}
    found = json.loads(run_peer("-c", PEERS, json.dumps(rows), script.parent, **cache).splitlines()[-1])
    theirs = found["theirs"]
    assert found["module"]["metrics"] == ["share", "share.n"]
    assert found["module"]["point"] == pytest.approx(theirs["module"], abs=1e-12)
    assert found["accuracy"]["metrics"] == ["accuracy_score"]
    assert found["accuracy"]["point"] == pytest.approx(theirs["accuracy"], abs=1e-12)
    assert found["f1"]["values"] == pytest.approx(theirs["f1"], abs=1e-12)
