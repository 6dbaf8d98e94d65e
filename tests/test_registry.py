from __future__ import annotations

import pytest

import kofn
from kofn import registry

NAMES = [(kind, name) for kind, table in registry.TABLES.items() for name in table]


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_every_name_loads_and_has_a_summary(kind, name):
    entry = next(e for e in registry.entries(kind) if e.name == name)
    assert 10 < len(entry.summary) < 140


@pytest.mark.parametrize(
    "spec",
    ["pass@5", "pass^2", "maj@3", "ndcg(k=3)", "majority(ties='shared')", "maj_at(k=3, ties='first')", "at_least(m=2)",
     "weighted_mean(weights=(3, 2, 1))", "selected(by='judge')", "distinct(n=1)", "g_pass_at(k=4, tau=0.5)"],
)  # fmt: skip
def test_a_name_resolves_to_an_aggregator_of_that_name(spec):
    rule = kofn.aggregator(spec)
    assert kofn.aggregator(rule.name) == rule


def test_short_forms():
    assert kofn.aggregator("pass@5") == kofn.aggregator("pass_at(k=5)") == kofn.aggregator("pass_at(5)")
    assert kofn.aggregator("ndcg@3") == kofn.aggregator("ndcg(k=3)")
    assert kofn.aggregator("p@3") == kofn.aggregator("precision(3)")


def test_a_dotted_path_names_your_own(tmp_path, monkeypatch):
    (tmp_path / "mine_for_kofn.py").write_text(
        "def shortest(one): return min(map(len, one.texts))\n"
        "def half(text, choices=None): return text[: len(text) // 2] or None\n"
        "def starts(p, reference): return {'starts': reference.startswith(p), 'length': len(p)}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    rows = [{"id": 1, "reference": "abc", "outputs": ["abcd", "xy"]}]
    result = kofn.score(
        rows,
        extract="mine_for_kofn:half",
        metric="mine_for_kofn:starts",
        aggregate=["mine_for_kofn:shortest", "mean"],
    )
    found = {(e.metric, e.aggregator): e.point for e in result.estimates}
    assert found["starts", "mine_for_kofn:shortest"] == 2
    assert found["starts", "mean"] == 0.5
    assert found["starts.length", "mean"] == 1.5


def test_an_entry_point_adds_a_name_and_a_clash_is_an_error(monkeypatch):
    from importlib import metadata

    advertised = ["average"]

    def points(group):
        return [metadata.EntryPoint(name, "kofn.aggregators.scores:Mean", group) for name in advertised]

    monkeypatch.setattr(metadata, "entry_points", points)
    registry.known.cache_clear()
    assert kofn.aggregator("average") == kofn.aggregator("mean")
    advertised.append("max")
    registry.known.cache_clear()
    with pytest.raises(kofn.InputError, match="two things are called aggregator 'max'"):
        kofn.aggregator("average")
    registry.known.cache_clear()


def test_an_unknown_name_is_an_error_that_offers_the_nearest():
    with pytest.raises(kofn.KofnError, match="did you mean majority"):
        kofn.aggregator("majorty")


def test_a_function_in_a_file_is_named_by_its_path(tmp_path, monkeypatch):
    (tmp_path / "beside.py").write_text("WIDTH = 1\n")
    (tmp_path / "json.py").write_text(  # called like a module of the standard library
        "import beside\n"
        "def close(prediction, reference): return abs(float(prediction) - float(reference)) <= beside.WIDTH\n"
        "def half(one): return 0.5\n"
        "def last(text, choices=None): return text.split()[-1]\n"
        "def answer(prompt): return 'It is 5'\n"
        "def pick(one): return 0\n"
    )
    monkeypatch.chdir(tmp_path)
    rows = [{"id": "q", "reference": "4", "outputs": ["It is 5", "It is 7"]}]
    for place in ("json.py", str(tmp_path / "json.py")):
        found = kofn.score(rows, extract=f"{place}:last", metric=f"{place}:close", aggregate=["mean", f"{place}:half"])
        assert [e.point for e in found.estimates] == [0.5, 0.5]
    task = {"name": "t", "dataset": [{"id": "a", "question": "2 + 2", "answer": "5"}], "prompt": "{question}"}
    for spec in ("json.py:answer", "fake:json.py:answer"):
        assert kofn.run(task, model=spec, repeats=1, extract="number").result.get("mean").point == 1.0
    picked = [{**rows[0], "id": f"q{i}"} for i in range(3)]
    assert "json.py:pick" in str(kofn.compare(picked, selectors=["json.py:pick", "first"]))


@pytest.mark.parametrize(
    ("spec", "said"),
    [("nowhere.py:f", "there is no file"), ("own.py:g", "has no 'g'"), ("broken.py:f", "ZeroDivisionError: division")],
)
def test_a_file_without_the_function_is_refused_in_one_line(spec, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("def f(p, r): return 1\n")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    with pytest.raises(kofn.InputError, match=said) as caught:
        kofn.metric(spec)
    assert "\n" not in str(caught.value)
