"""`kofn.run`: prepare, generate, finish; taken up again, grown, stopped, refused."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from tests.loopback import serving
from tests.runs.older_runs import unpack

import kofn
from kofn.errors import InputError, KofnError, WorldError
from kofn.models.base import Likelihood, Model, Reply, RequestRejected


class Echo(Model):
    """Says a digit that depends on the seed, and keeps what it was asked."""

    name = "echo"
    concurrency = 4
    samples = 4

    def __init__(self, name="echo", broken=()):
        self.name = name
        self.requests = []
        self.broken = set(broken)

    async def generate(self, requests):
        for place, request in enumerate(requests):
            self.requests.append(request)
            if request.case_id in self.broken:
                raise RequestRejected("too long")
            for j in range(request.n):
                digit = 4 if (request.sampling.seed + j) % 3 else 7
                yield Reply(place=place, index=j, text=f"It is {digit}.", tokens_in=10, tokens_out=5)

    @property
    def drawn(self):
        return sum(request.n for request in self.requests)


def task(n=12, **more):
    records = [{"id": f"q{i}", "question": f"2 + {i}", "answer": "4", "kind": "ab"[i % 2]} for i in range(n)]
    return {"name": "sums", "dataset": records, "stages": [{"name": "answer", "prompt": "{question} ="}], **more}


def texts(run):
    return run.result.table.candidates["text"].to_list()


# the run directory


@pytest.mark.parametrize(
    "option", [{"top_k": 0}, {"threshold": float("nan")}, {"n_resamples": -1}, {"level": 2.0}, {"interval": "nope"}]
)
def test_grading_that_cannot_be_is_refused_before_anything_is_asked(option):
    model = Echo()
    with pytest.raises(InputError):
        kofn.run(task(), model=model, repeats=2, **option)
    assert model.requests == []


def test_a_run_ends_in_a_directory_that_loads_as_what_was_returned(tmp_path):
    done = kofn.run(task(), model=Echo(), repeats=3, out=tmp_path / "r", by=["kind"])
    again = kofn.load_run(tmp_path / "r")
    assert again.result.to_dict() == done.result.to_dict()
    assert again.manifest["kind"] == "run"
    assert again.manifest["generation"]["models"] == {"actor": "echo"}
    assert {p.name for p in (tmp_path / "r").iterdir()} >= {
        "run.json",
        "candidates.parquet",
        "report.html",
        "store.sqlite",
    }
    line = json.loads((tmp_path / "r" / "results.jsonl").read_text())
    assert line["num_examples"] == 12
    assert len(line["detailed_results"][0]["repeats"]) == 3


def test_every_number_is_that_of_scoring_the_stored_candidates(tmp_path):
    done = kofn.run(task(), model=Echo(), repeats=3, out=tmp_path / "r")
    rows = [
        {"id": case, "reference": "4", "output": text}
        for case, text in zip(
            pl.read_parquet(tmp_path / "r" / "candidates.parquet")["case_id"], texts(done), strict=True
        )
    ]
    by_hand = kofn.score(rows)
    assert [(e.aggregator, e.point, e.low) for e in done.result.estimates] == [
        (e.aggregator, e.point, e.low) for e in by_hand.estimates
    ]


def test_without_a_directory_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert kofn.run(task(), model=Echo(), repeats=1).result.n_candidates == 12
    assert list(tmp_path.iterdir()) == []


# again, and more


def test_the_same_run_again_asks_for_nothing_and_says_the_same(tmp_path):
    first = kofn.run(task(), model=Echo(), repeats=3, out=tmp_path / "r")
    model = Echo()
    second = kofn.run(task(), model=model, repeats=3, out=tmp_path / "r")
    assert model.requests == []
    assert second.result.to_dict() == first.result.to_dict()
    assert second.manifest["generation"]["reused"] == 36
    assert len((tmp_path / "r" / "results.jsonl").read_text().splitlines()) == 1


def test_more_repeats_and_more_cases_ask_only_for_the_new_ones(tmp_path):
    small = kofn.run(task(), model=Echo(), repeats=3, limit=6, out=tmp_path / "r")
    more = Echo()
    grown = kofn.run(task(), model=more, repeats=5, limit=6, out=tmp_path / "r")
    assert more.drawn == 6 * 2
    assert [t[:3] for t in _by_case(grown)] == _by_case(small)
    whole = Echo()
    kofn.run(task(), model=whole, repeats=5, out=tmp_path / "r")
    assert whole.drawn == 6 * 5
    fresh = kofn.run(task(), model=Echo(), repeats=5, out=tmp_path / "other")
    assert texts(kofn.load_run(tmp_path / "r")) == texts(fresh)


def _by_case(run):
    bounds, all_texts = run.result.table.offsets.tolist(), texts(run)
    return [all_texts[a:b] for a, b in pairwise(bounds)]


def test_fewer_repeats_show_the_first_ones_and_keep_the_others(tmp_path):
    kofn.run(task(), model=Echo(), repeats=5, out=tmp_path / "r")
    fewer = kofn.run(task(), model=Echo(), repeats=2, out=tmp_path / "r")
    assert fewer.result.n_candidates == 24
    model = Echo()
    kofn.run(task(), model=model, repeats=5, out=tmp_path / "r")
    assert model.requests == []


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"temperature": 0.3}, "answer.temperature"),
        ({"seed": 7}, "seed"),
        ({"model": Echo("another")}, "models"),
        ({"reproducible": True}, "mode"),
    ],
)
def test_a_directory_of_another_run_is_refused_and_left_alone(tmp_path, other, named):
    kofn.run(task(), model=Echo(), repeats=1, out=tmp_path / "r")
    before = (tmp_path / "r" / "run.json").read_bytes()
    with pytest.raises(InputError, match=named):
        kofn.run(task(), **{"model": Echo(), "repeats": 1, "out": tmp_path / "r", **other})
    assert (tmp_path / "r" / "run.json").read_bytes() == before


def test_another_extractor_or_metric_scores_the_stored_outputs(tmp_path):
    kofn.run(task(), model=Echo(), repeats=2, out=tmp_path / "r")
    model = Echo()
    again = kofn.run(task(), model=model, repeats=2, extract="text", metrics=["contains"], out=tmp_path / "r")
    assert model.requests == []
    assert again.result.scored[0].metric == "contains"


# what goes wrong


def test_a_request_that_is_declined_is_an_error_row_and_never_a_zero(tmp_path):
    done = kofn.run(task(), model=Echo(broken={"q1", "q5"}), repeats=2, out=tmp_path / "r")
    assert done.result.n_missing == 4
    assert done.result.get("mean").n == 10
    assert done.manifest["generation"]["errors"] == 4
    errors = done.result.table.candidates["error"].drop_nulls()
    assert errors.len() == 4
    assert "too long" in errors[0]


def test_errors_are_asked_again_only_on_request(tmp_path):
    kofn.run(task(), model=Echo(broken={"q1"}), repeats=2, out=tmp_path / "r")
    mended = Echo()
    still = kofn.run(task(), model=mended, repeats=2, out=tmp_path / "r")
    assert mended.requests == []
    assert still.result.n_missing == 2
    done = kofn.run(task(), model=mended, repeats=2, out=tmp_path / "r", retry_errors=True)
    assert [r.case_id for r in mended.requests] == ["q1"]
    assert done.result.n_missing == 0


def test_a_refused_key_stops_at_the_first_reply(tmp_path):
    with serving(faults={"*": "401"}) as server, pytest.raises(KofnError, match="401"):
        kofn.run(task(200), model=f"openai:m@{server.url}", repeats=1, out=tmp_path / "r", concurrency=2)
    assert len(server.requests) <= 4


@pytest.mark.long
def test_faults_of_a_server_end_as_retried_or_as_error_rows(tmp_path):
    faults = {"*": {"500": 0.1, "cut": 0.1, "malformed": 0.1, "429-ms": 0.1, "400": 0.05}}
    with serving(faults=faults) as server:
        done = kofn.run(task(60), model=f"openai:m@{server.url}", repeats=1, out=tmp_path / "r", retries=8)
    generation = done.manifest["generation"]
    declined = [r for r in server.requests if r["fault"] == "400"]
    assert generation["retries"] > 0
    assert generation["errors"] == len(declined) == done.result.n_missing > 0
    assert done.result.n_candidates == 60


def test_a_budget_stops_the_run_and_the_same_command_goes_on(tmp_path):
    cut = kofn.run(task(), model=Echo(), repeats=4, out=tmp_path / "r", token_budget=100, concurrency=1)
    assert "--token-budget 100" in cut.manifest["generation"]["stopped"]
    assert 0 < cut.result.n_candidates < 48
    assert any("not whole" in w for w in map(str, cut.result.warnings))
    done = kofn.run(task(), model=Echo(), repeats=4, out=tmp_path / "r")
    assert done.manifest["generation"]["stopped"] is None
    assert texts(done) == texts(kofn.run(task(), model=Echo(), repeats=4))


def test_a_bound_on_money_needs_a_price(tmp_path):
    with pytest.raises(InputError, match="no price is known for openai:nobody"):
        kofn.run(task(), model="openai:nobody@http://models.invalid/v1", out=tmp_path / "r", max_cost=1)


def test_nothing_generated_yet_is_said(tmp_path):
    with pytest.raises(WorldError, match="no candidate is whole yet"):
        kofn.run(task(), model=Echo(), out=tmp_path / "r", max_time=1e-9)


# money


def test_prices_of_a_file_make_the_cost_of_candidates_cases_and_run(tmp_path):
    prices = tmp_path / "prices.yaml"
    prices.write_text("ours:\n  models:\n    echo: {input: 1000000, output: 2000000}\n")
    done = kofn.run(task(), model=Echo(), repeats=4, out=tmp_path / "r", prices=prices)
    # a request of four outputs counts its prompt once: 10 tokens in, and 5 out each
    assert done.manifest["generation"]["cost"] == pytest.approx(12 * (10 + 4 * 5 * 2))
    assert done.result.diagnostics["cost"]["per_case"] == pytest.approx(50)


def test_an_unknown_price_is_no_zero(tmp_path):
    done = kofn.run(task(), model=Echo(), repeats=1, out=tmp_path / "r")
    assert done.manifest["generation"]["cost"] is None
    assert "cost" not in done.result.table.candidates.columns


# stages


def test_the_critic_answers_without_the_question(tmp_path):
    actor, critic = Echo("actor"), Echo("critic")
    done = kofn.run(task(), model=actor, answer_model=critic, two_stage=True, repeats=2, out=tmp_path / "r")
    assert {r.prompt for r in actor.requests} == {f"Question: 2 + {i}\nReasoning:" for i in range(12)}
    assert all(r.prompt.startswith("Reasoning: It is ") and r.prompt.endswith("\nAnswer:") for r in critic.requests)
    assert not any("Question" in r.prompt for r in critic.requests)
    assert {r.sampling.temperature for r in critic.requests} == {0.0}
    assert all(text.startswith("It is") for text in done.result.table.candidates["reasoning"])
    assert done.manifest["generation"]["models"] == {"actor": "actor", "critic": "critic"}


def test_with_a_reward_for_the_actor_it_answers_itself_and_may_see_the_question():
    actor, critic = Echo("actor"), Echo("critic")
    settings = {"two_stage": True, "actor_reward_weight": 0.5, "markovian": False}
    kofn.run(task(), model=actor, answer_model=critic, repeats=1, **settings)
    assert critic.requests == []
    answers = [r.prompt for r in actor.requests if "Answer:" in r.prompt]
    assert len(answers) == 12
    assert all(prompt.startswith("Question: 2 + ") for prompt in answers)


def test_both_ways_are_compared_on_the_same_reasoning(tmp_path):
    actor = Echo("actor")
    done = kofn.run(task(), model=actor, compare_markovian=True, repeats=2, out=tmp_path / "r")
    reasoning = [r for r in actor.requests if r.prompt.endswith("Reasoning:")]
    assert sum(r.n for r in reasoning) == 24  # once, for both
    other = kofn.load_run(tmp_path / "r" / "with-question")
    assert other.result.table.candidates["reasoning"].equals(done.result.table.candidates["reasoning"])
    entry = done.manifest["generation"]["markovian"]
    assert entry["difference"] == pytest.approx(other.result.get("mean").point - done.result.get("mean").point)
    assert entry["n"] == 12


def test_any_number_of_stages_each_with_its_model():
    first, second = Echo("first"), Echo("second")
    stages = [
        {"name": "plan", "prompt": "Plan: {question}", "temperature": 0.5},
        {"name": "draft", "prompt": "{plan} -> draft", "model": "critic"},
        {"name": "answer", "prompt": "{draft} | {plan} | {question}"},
    ]
    done = kofn.run(task(3, stages=stages), model=first, answer_model=second, repeats=1)
    assert len(second.requests) == 3
    last = done.result.table.candidates["reasoning"][0]
    assert last.count("It is") == 2
    assert done.manifest["generation"]["tokens_out"] == 3 * 3 * 5


@pytest.mark.parametrize("wrong", [{"markovian": True}, {"actor_reward_weight": 1.0}])
def test_what_is_for_two_stages_is_refused_for_one(wrong):
    with pytest.raises(InputError, match="two stages"):
        kofn.run(task(), model=Echo(), **wrong)


# adaptive


def test_adaptive_repeats_stop_early_and_numbers_that_would_be_biased_use_the_first_ones(tmp_path):
    done = kofn.run(task(30), model=Echo(), adaptive=True, max_repeats=30, out=tmp_path / "r")
    entry = done.manifest["generation"]["adaptive"]
    assert entry["candidates"] < entry["fixed"] == 900
    whole = kofn.run(task(30), model=Echo(), repeats=entry["first"])
    for name in ("mean", "any_pass", "pass@2"):
        assert done.result.get(name).point == whole.result.get(name).point
    drawn = kofn.score(
        [{"id": i, "reference": "4", "outputs": of} for i, of in enumerate(_by_case(done))], aggregate=["majority"]
    )
    assert done.result.get("majority").point == drawn.get("majority").point
    assert any("of the first 4 candidates" in w for w in map(str, done.result.warnings))
    model = Echo()
    kofn.run(task(30), model=model, adaptive=True, max_repeats=30, out=tmp_path / "r")
    assert model.requests == []


# likelihood


class Likely(Model):
    """Likes long continuations."""

    name = "likely"

    async def generate(self, requests):
        raise AssertionError(f"nothing is generated here: {requests}")
        yield

    async def loglikelihood(self, pairs):
        self.requests = [*getattr(self, "requests", []), *pairs]
        return [Likelihood(logprob=float(-10 + len(c)), tokens=2, greedy=len(c) > 4) for _, c in pairs]


def test_options_are_chosen_by_likelihood_in_the_order_of_each_repeat():
    records = [
        {"id": f"q{i}", "question": f"Which? {i}", "choices": ["no", "a long one", "yes"], "answer": "B"}
        for i in range(4)
    ]
    model = Likely()
    choosing = {"name": "mcq", "dataset": records, "output_type": "multiple_choice"}
    done = kofn.run(choosing, model=model, repeats=3)
    assert done.result.get("mean").point == 1.0
    assert set(texts(done)) == {"B"}
    assert len({context for context, _ in model.requests if context.startswith("Question: Which? 0")}) > 1


def test_the_likelihood_of_a_reference_is_a_score_and_a_pass():
    records = [{"id": "a", "question": "x", "answer": "long enough"}, {"id": "b", "question": "y", "answer": "no"}]
    done = kofn.run({"name": "ll", "dataset": records, "output_type": "loglikelihood",
                     "stages": [{"prompt": "{question}"}]}, model=Likely(), repeats=1)  # fmt: skip
    assert done.result.get("mean", metric="pass").point == 0.5
    assert done.result.get("mean", metric="score").point is not None


# runs of the previous version


@pytest.mark.parametrize(
    ("lost", "reasonings", "answers"),
    [("0", 0, 0), ("rowid % 2 = 0", 12, 12), ("stage = 'answer'", 0, 24), ("case_id IN ('d1', 'd5')", 6, 6)],
)
def test_a_run_that_the_previous_version_began_is_resumed_and_nothing_is_paid_twice(
    tmp_path, lost, reasonings, answers
):
    folder = unpack(2, tmp_path) / "generated"
    before = json.loads((folder / "run.json").read_text())
    cases = pl.read_parquet(folder / "cases.parquet").select("case_id", "input", "reference", "kind")
    with closing(sqlite3.connect(folder / "store.sqlite")) as store:
        store.execute(f"DELETE FROM replies WHERE {lost}")  # noqa: S608 - as a stopped run leaves it
        store.commit()
        kept = dict(store.execute("SELECT key, text FROM replies"))
    if reasonings or answers:
        for name in ("run.json", "evaluation.json", *(path.name for path in folder.glob("*.parquet"))):
            (folder / name).unlink()  # it was stopped before it was scored
    lengths = {"reasoning": {"max_tokens": 24, "stop": "\n"}, "answer": {"max_tokens": 8, "stop": "\n"}}
    digits = {
        "name": "digits",
        "dataset": cases.rename({"case_id": "id", "input": "question", "reference": "answer"}).to_dicts(),
        "two_stage": {"markovian": True, "temperature": 0.8, **lengths},
        "extract": "number",
        "metrics": ["numeric"],
        "repeats": 3,
    }
    actor, critic = (Echo(name) for name in before["generation"]["models"].values())
    actor.chat = critic.chat = True
    done = kofn.run(digits, model=actor, answer_model=critic, out=folder, seed=0)
    assert (actor.drawn, critic.drawn) == (reasonings, answers)
    assert done.manifest["generation"]["reused"] == len(kept) == 48 - reasonings - answers
    with closing(sqlite3.connect(folder / "store.sqlite")) as store:
        stored = dict(store.execute("SELECT key, text FROM replies"))
    assert len(stored) == 48
    assert {key: stored[key] for key in kept} == kept
    if not reasonings + answers:
        points = {e["aggregator"]: e["point"] for e in before["result"]["estimates"] if e["segment"] is None}
        assert {e.aggregator: e.point for e in done.result.estimates} == points
        assert done.manifest["generation"]["cost"] == before["generation"]["cost"]
    assert kofn.load_run(folder).result.to_dict() == done.result.to_dict()


# the command's parts


def test_replaying_a_run_gives_the_run(tmp_path):
    done = kofn.run(task(), model=Echo(), repeats=3, out=tmp_path / "r")
    again = kofn.run(task(), model=f"replay:{tmp_path / 'r'}", repeats=3, out=tmp_path / "again")
    assert texts(again) == texts(done)


def test_unknown_options_and_impossible_ones_are_named():
    with pytest.raises(InputError, match="did you mean repeats"):
        kofn.run(task(), model=Echo(), repeat=3)
    with pytest.raises(InputError, match="repeats is 0"):
        kofn.run(task(), model=Echo(), repeats=0)
    with pytest.raises(InputError, match="adaptive"):
        kofn.run(task(), model=Echo(), max_repeats=3)


def test_data_at_hand_takes_the_place_of_the_tasks_own(tmp_path):
    done = kofn.run("gsm8k", model=Echo(), data=[("2 + 2?", "4"), ("3 + 4?", "7")], repeats=2, out=tmp_path / "r")
    assert done.result.n_cases == 2


# secrets


def test_a_key_is_in_no_file_of_a_run_and_in_no_message(tmp_path, monkeypatch, capfd):
    key = "sk-secret-5e1f0c7a9b3d"
    monkeypatch.setenv("KOFN_API_KEY", key)
    with serving(faults={"bad": "401:echo", "*": {"500:echo": 0.3}}) as server:
        kofn.run(task(), model=f"openai:m@{server.url}", repeats=2, out=tmp_path / "r")
        with pytest.raises(KofnError) as refused:
            kofn.run(task(), model=f"openai:bad@{server.url}", out=tmp_path / "bad")
    assert any(key in h.get("authorization", "") for h in server.headers)
    assert key not in str(refused.value)
    for path in (p for p in Path(tmp_path).rglob("*") if p.is_file()):
        assert key.encode() not in path.read_bytes(), path
    assert key not in "".join(capfd.readouterr())


# a model reads the answers


def test_answers_read_by_a_model_stand_beside_the_extractors(tmp_path):
    with serving() as server:
        done = kofn.run(task(), model=Echo(), repeats=2, llm_extract=f"openai:reader@{server.url}", out=tmp_path / "r")
        line = json.loads((tmp_path / "r" / "results.jsonl").read_text())
        entry = done.manifest["generation"]["llm_extraction"]
        assert line["haiku_num_calls"] == entry["num_calls"] == len(server.requests) > 0
        assert line["haiku_accuracy"] == entry["accuracy"]
        assert entry["n_disagreements"] > 0  # the server says any digit
        n = len(server.requests)
        kofn.run(task(), model=Echo(), repeats=2, llm_extract=f"openai:reader@{server.url}", out=tmp_path / "r")
        assert len(server.requests) == n


def test_without_a_key_the_reading_is_skipped_with_a_line(tmp_path, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    done = kofn.run(task(), model=Echo(), repeats=1, llm_extract="anthropic:claude-haiku-4-5", out=tmp_path / "r")
    assert any("ANTHROPIC_API_KEY" in w and "skipped" in w for w in map(str, done.result.warnings))
    assert "haiku_accuracy" not in json.loads((tmp_path / "r" / "results.jsonl").read_text())


def test_a_part_of_the_cases_may_lack_a_group_that_the_task_names(tmp_path):
    grouped = {**task(), "groups": {"field": "kind", "types": {"a": "Core", "b": "Functionality"}, "weights": {"b": 2}}}
    one = kofn.run(grouped, model=Echo(), repeats=1, limit=1, out=tmp_path / "r")
    assert list(one.evaluation.group_outcomes) == ["a"]
    both = kofn.run(grouped, model=Echo(), repeats=1, out=tmp_path / "r")
    assert {name: group.type.value for name, group in both.evaluation.group_outcomes.items()} == {
        "a": "Core",
        "b": "Functionality",
    }
    with pytest.raises(InputError, match="unknown group 'c'"):
        kofn.run({**grouped, "groups": {"field": "kind", "types": {"c": "Core"}}}, model=Echo())


@pytest.mark.parametrize("aggregate", [["mean"], ["majority"], ["mean", "majority", "pass@2"], []])
def test_an_adaptive_run_of_any_aggregators_loads_again(tmp_path, aggregate):
    done = kofn.run(task(), model=Echo(), adaptive=True, max_repeats=9, aggregate=aggregate, out=tmp_path / "r")
    again = kofn.load_run(tmp_path / "r")
    assert again.result.to_dict() == done.result.to_dict()
    if aggregate:
        assert [e.aggregator for e in done.result.estimates] == aggregate


def test_an_adaptive_run_in_a_directory_with_more_candidates_uses_those_its_rule_asks_for(tmp_path):
    alone = kofn.run(task(), model=Echo(), adaptive=True, max_repeats=9, out=tmp_path / "alone")
    kofn.run(task(), model=Echo(), repeats=9, out=tmp_path / "r")
    model = Echo()
    after = kofn.run(task(), model=model, adaptive=True, max_repeats=9, out=tmp_path / "r")
    assert model.requests == []
    assert _by_case(after) == _by_case(alone)
    assert after.result.to_dict() | {"understood": 0, "diagnostics": 0} == alone.result.to_dict() | {
        "understood": 0,
        "diagnostics": 0,
    }


def test_data_that_was_edited_and_restored_is_graded_on_its_own_replies(tmp_path):
    class Says(Echo):
        async def generate(self, requests):
            self.requests += requests
            for place, request in enumerate(requests):
                for j in range(request.n):
                    yield Reply(place=place, index=j, text=f"It is {4 if '2 +' in str(request.prompt) else 9}.")

    edited = {**task(), "dataset": [{**r, "question": r["question"].replace("2 +", "5 +")} for r in task()["dataset"]]}
    first = kofn.run(task(), model=Says(), repeats=2, out=tmp_path / "r")
    other = kofn.run(edited, model=Says(), repeats=2, out=tmp_path / "r")
    assert other.result.get("mean").point == 0.0
    model = Says()
    restored = kofn.run(task(), model=model, repeats=2, out=tmp_path / "r")
    assert model.requests == []
    assert restored.result.get("mean").point == first.result.get("mean").point == 1.0


@pytest.mark.parametrize("repeats", [1, 3])
def test_a_run_in_which_every_call_failed_is_written_shown_and_loaded(tmp_path, repeats):
    broken = Echo(broken={f"q{i}" for i in range(12)})
    done = kofn.run(task(), model=broken, repeats=repeats, out=tmp_path / "r")
    assert "most often: too long" in str(done.result)
    assert kofn.load_run(tmp_path / "r").result.n_missing == 12 * repeats


def test_the_stages_before_a_choice_list_the_options_as_the_choice_does():
    class Letters(Likely):
        """Reasons with the letter of the right text, and finds likely what was reasoned."""

        async def generate(self, requests):
            for place, request in enumerate(requests):
                line = next(x for x in str(request.prompt).splitlines() if x.endswith(") right"))
                yield Reply(place=place, text=line[0])

        async def loglikelihood(self, pairs):
            return [
                Likelihood(logprob=0.0 if f"{c.strip()}\nAnswer" in q else -9.0, tokens=1, greedy=True)
                for q, c in pairs
            ]

    records = [
        {"id": f"q{i}", "question": f"Which {i}?", "choices": ["no", "right", "never"], "answer": "B"} for i in range(5)
    ]
    choosing = {
        "name": "mcq",
        "dataset": records,
        "output_type": "multiple_choice",
        "multiple_choice": {"score": "letter"},
    }
    done = kofn.run(choosing, model=Letters(), two_stage=True, repeats=4)
    assert done.result.get("all_pass").point == 1.0


def test_a_price_that_is_not_known_for_one_stage_is_no_price_for_the_candidate(tmp_path):
    prices = tmp_path / "prices.yaml"
    prices.write_text("ours:\n  models:\n    actor: {input: 1, output: 1}\n")
    done = kofn.run(task(), model=Echo("actor"), answer_model=Echo("critic"), two_stage=True, repeats=1, prices=prices)
    assert done.manifest["generation"]["cost"] is None


def test_a_bound_is_passed_by_one_call_at_most(tmp_path):
    prices = tmp_path / "prices.yaml"
    prices.write_text("ours:\n  models:\n    echo: {input: 100000, output: 100000}\n")  # 1.5 a call of one output
    cut = kofn.run(task(60), model=Echo(), repeats=1, prices=prices, max_cost=10, concurrency=16, out=tmp_path / "r")
    assert 10 <= cut.manifest["generation"]["cost"] <= 11.5


@pytest.mark.parametrize("bound", [{"token_budget": 100_000}, {"max_cost": 100}])
def test_a_bound_far_away_stops_nobody_where_a_server_gives_fewer_outputs_than_asked(tmp_path, bound):
    with serving() as server:
        done = kofn.run(
            task(6), model=f"openai:one-choice@{server.url}", repeats=4, out=tmp_path / "r", max_time=30, **bound
        )
    assert done.manifest["generation"]["stopped"] is None
    assert done.result.n_candidates == 24
