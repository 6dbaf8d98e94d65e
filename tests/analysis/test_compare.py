"""Systems, graders and selectors compared case by case: laws, and the numbers of other packages."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import kofn
from kofn.analysis.compare.differences import ComparisonRules, pairs_of
from kofn.analysis.compare.same_outputs import (
    by_extractor,
    by_metric,
    compare_graders,
    compare_selectors,
    selector_double_dipping,
)
from kofn.analysis.compare.systems import ComparisonOptions, Side, compare_systems
from kofn.analysis.selectors import Selector
from kofn.errors import InputError, UnknownName
from kofn.importers.base import ReadOptions
from kofn.runs.load import load_table
from kofn.scoring.configuration import GradingConfig
from kofn.stats import cohen_kappa, compare, holm

flags = st.lists(st.lists(st.integers(0, 1), min_size=3, max_size=3), min_size=2, max_size=12)


def rows_of(lists, ids=None, **more):
    ids = [f"c{i}" for i in range(len(lists))] if ids is None else ids
    return [
        {"id": case, "passes": passes, **{name: column[i] for name, column in more.items()}}
        for i, (case, passes) in enumerate(zip(ids, lists, strict=True))
    ]


def side(name, lists, ids=None, aggregate=("any_pass", "mean", "all_pass"), *, weights=None, clusters=None, **more):
    result = kofn.score(rows_of(lists, ids, **more), aggregate=list(aggregate), everything=True)
    return Side(name=name, result=result, weights=weights, clusters=clusters)


def by_number(found):
    return {(d.aggregator, d.segment): d for d in found.differences}


def noise(rng, n=40, k=3):
    rates = rng.beta(1, 1, n)
    return [rng.binomial(1, np.tile(rates[:, None], k)).tolist() for _ in range(2)]


# laws


@given(flags, st.randoms(use_true_random=False))
def test_swapping_the_sides_turns_every_difference_round(lists, rng):
    other = [[rng.randint(0, 1) for _ in row] for row in lists]
    there = by_number(compare_systems([side("a", lists), side("b", other)]))
    back = by_number(compare_systems([side("b", other), side("a", lists)]))
    for key, d in there.items():
        c, r = d.comparison, back[key].comparison
        assert (c.wins, c.ties, c.losses, c.n) == (r.losses, r.ties, r.wins, r.n)
        assert (c.a, c.b) == (r.b, r.a)
        assert c.difference == pytest.approx(-r.difference, abs=1e-12)
        assert (c.low, c.high) == pytest.approx((-r.high, -r.low), abs=1e-9)
        assert (c.p, d.p_holm, c.mcnemar_p) == (r.p, back[key].p_holm, r.mcnemar_p)


@given(flags, st.randoms(use_true_random=False))
def test_the_order_of_the_cases_does_not_matter(lists, rng):
    other = [[rng.randint(0, 1) for _ in row] for row in lists]
    ids = [f"c{i}" for i in range(len(lists))]
    order = rng.sample(range(len(lists)), len(lists))
    shuffled = side("b", [other[i] for i in order], [ids[i] for i in order])
    straight, mixed = (compare_systems([side("a", lists), b]) for b in (side("b", other), shuffled))
    assert [d.to_dict() for d in straight.differences] == [d.to_dict() for d in mixed.differences]
    assert [c.to_dict() for c in straight.changed] == [c.to_dict() for c in mixed.changed]


@given(flags)
def test_equal_systems_differ_in_nothing(lists):
    found = compare_systems([side("a", lists), side("b", lists)])
    assert all(d.comparison.difference == 0 and d.comparison.p == 1 and not d.holds for d in found.differences)
    assert found.changed == ()


@given(flags, st.randoms(use_true_random=False))
def test_what_changed_is_where_the_verdicts_differ(lists, rng):
    other = [[rng.randint(0, 1) for _ in row] for row in lists]
    found = compare_systems([side("a", lists), side("b", other)])
    want = {
        f"c{i}": "up" if any(b) else "down"
        for i, (a, b) in enumerate(zip(lists, other, strict=True))
        if any(a) != any(b)
    }
    assert {c.case: c.way for c in found.changed} == want
    counts = by_number(found)["any_pass", None].comparison
    assert (counts.wins, counts.losses) == tuple(list(want.values()).count(way) for way in ("up", "down"))
    for c in found.changed:
        at = int(c.case[1:])
        assert [s.passed for s in c.a] == [bool(x) for x in lists[at]]
        assert [s.passed for s in c.b] == [bool(x) for x in other[at]]


# numbers of other packages


@given(flags, st.randoms(use_true_random=False))
def test_p_of_0_1_values_is_mcnemars_which_is_a_binomial_test(lists, rng):
    scipy = pytest.importorskip("scipy.stats")
    other = [[rng.randint(0, 1) for _ in row] for row in lists]
    c = by_number(compare_systems([side("a", lists), side("b", other)]))["any_pass", None].comparison
    assume(c.wins + c.losses)
    want = scipy.binomtest(c.wins, c.wins + c.losses).pvalue
    assert (c.p, c.mcnemar_p) == pytest.approx((want, want), abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_p_of_shares_is_that_of_scipys_permutation_test(seed):
    scipy = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(0, 2, (9, 3)) for _ in range(2))
    c = by_number(compare_systems([side("a", a.tolist()), side("b", b.tolist())]))["mean", None].comparison
    want = scipy.permutation_test(
        (b.mean(axis=1), a.mean(axis=1)),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf,
    ).pvalue
    assert c.p == pytest.approx(want, abs=1e-12)


def test_clusters_and_weights_are_those_of_the_statistics():
    rng = np.random.default_rng(2)
    a, b = noise(rng)
    clusters, weights = np.arange(40) // 4, rng.uniform(0.5, 3, 40)
    common = {"clusters": clusters, "weights": weights}
    d = by_number(compare_systems([side("a", a, **common), side("b", b, **common)]))["mean", None]
    ids = [f"c{i}" for i in range(40)]
    want = compare(ids, np.mean(a, axis=1), ids, np.mean(b, axis=1), clusters=clusters, weights=weights)
    assert d.comparison == want
    assert d.comparison.difference == pytest.approx(np.average(np.mean(b, 1) - np.mean(a, 1), weights=weights))
    plain = by_number(compare_systems([side("a", a), side("b", b)]))["mean", None].comparison
    assert plain.difference != d.comparison.difference


def test_clusters_that_only_the_second_side_knows_are_used():
    a, b = noise(np.random.default_rng(3))
    clusters = np.arange(40) // 8
    one = compare_systems([side("a", a), side("b", b, clusters=clusters)])
    both = compare_systems([side("a", a, clusters=clusters), side("b", b, clusters=clusters)])
    assert [d.comparison.p for d in one.differences] == [d.comparison.p for d in both.differences]


# the family


def test_holm_is_over_all_metrics_aggregators_segments_and_pairs_and_equal_questions_count_once():
    rng = np.random.default_rng(4)
    lists = [rng.integers(0, 2, (30, 3)).tolist() for _ in range(3)]
    kind = [["x", "y", "z"][i % 3] for i in range(30)]
    rules = ("any_pass", "mean", "pass@1", "pass@3")
    sides = [side(name, one, aggregate=rules, kind=kind) for name, one in zip("abc", lists, strict=True)]
    found = compare_systems(sides, ComparisonOptions(by=("kind",), all_pairs=True))
    assert len(found.differences) == 3 * 4 * 4
    assert found.n_tests == 3 * 2 * 4  # pass@1 is the mean, pass@3 is any_pass
    distinct = [d for d in found.differences if d.aggregator in ("any_pass", "mean")]
    assert [d.p_holm for d in distinct] == holm([d.comparison.p for d in distinct])
    by = {(d.sides, d.segment, d.aggregator): d.p_holm for d in found.differences}
    assert all(p == by[s, g, "mean"] for (s, g, a), p in by.items() if a == "pass@1")


def share_that_calls_noise_real(runs):
    rng = np.random.default_rng(8)
    ask = ComparisonOptions(by=("kind",))
    kind = ["x" if i % 2 else "y" for i in range(30)]
    wrong = 0
    for _ in range(runs):
        a, b = noise(rng, 30)
        wrong += any(
            d.holds for d in compare_systems([side("a", a, kind=kind), side("b", b, kind=kind)], ask).differences
        )
    return wrong / runs


def test_noise_is_called_real_in_at_most_the_nominal_share_of_comparisons():
    assert share_that_calls_noise_real(40) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 40)


@pytest.mark.slow
def test_noise_is_called_real_in_at_most_the_nominal_share_of_many_comparisons():
    assert share_that_calls_noise_real(400) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)


def test_a_segment_is_the_comparison_of_its_cases_alone():
    a, b = noise(np.random.default_rng(5))
    kind = ["x" if i % 3 else "y" for i in range(40)]
    found = by_number(compare_systems([side("a", a, kind=kind), side("b", b)], ComparisonOptions(by=("kind",))))
    of_y = [i for i in range(40) if kind[i] == "y"]
    alone = by_number(
        compare_systems([side(n, [x[i] for i in of_y], [f"c{i}" for i in of_y]) for n, x in (("a", a), ("b", b))])
    )
    for name in ("any_pass", "mean", "all_pass"):
        assert found[name, "kind=y"].comparison == alone[name, None].comparison


def test_pairs_are_with_the_first_or_every_two():
    assert pairs_of(4, every=False) == [(0, 1), (0, 2), (0, 3)]
    assert len(pairs_of(4, every=True)) == 6


# what does not match


def test_cases_of_one_side_alone_are_named_and_take_no_part():
    a = side("a", [[1, 1], [0, 0], [1, 0]], ["x", "y", "z"])
    b = side("b", [[0, 0], [1, 1]], ["y", "w"])
    found = compare_systems([a, b])
    (unmatched,) = found.unmatched
    assert (unmatched.only_a, unmatched.only_b) == (("x", "z"), ("w",))
    assert all(d.comparison.n == 1 for d in found.differences)


def test_no_case_in_common_is_refused():
    with pytest.raises(InputError, match=r"a and b share no case id \('x', \.\.\. against 'y', \.\.\.\)"):
        compare_systems([side("a", [[1, 0]], ["x"]), side("b", [[1, 0]], ["y"])])


def test_cases_of_one_id_that_ask_something_else_are_counted():
    chosen = ["one", "two", "three"]
    a, b = (side(n, [[1], [0], [1]], input=[*chosen[:2], last]) for n, last in (("a", "three"), ("b", "four")))
    assert "1 of 3 shared cases ask or expect something else in b than in a" in str(compare_systems([a, b]).warnings[0])


def test_sets_of_another_size_are_remarked_and_top_k_cuts_both():
    rng = random.Random(1)
    a, b = ([[rng.randint(0, 1) for _ in range(n)] for _ in range(30)] for n in (5, 3))
    sides = [side("a", a), side("b", b)]
    (warning,) = compare_systems(sides).warnings
    assert str(warning) == (
        "sets differ in size: 5 candidates in a, 3 in b: numbers such as any_pass rise with more candidates; "
        "--top-k 3 cuts both"
    )
    cut = compare_systems(sides, ComparisonOptions(top_k=3))
    assert cut.warnings == ()
    same = compare_systems([side("a", [row[:3] for row in a]), side("b", b)])
    assert [d.to_dict() for d in cut.differences] == [d.to_dict() for d in same.differences]
    assert [c.to_dict() for c in cut.changed] == [c.to_dict() for c in same.changed]


def test_numbers_that_fewer_candidates_do_not_have_are_left_out():
    sides = [side(n, [[1, 0, 1], [0, 0, 1]], aggregate=("pass@1", "pass@3")) for n in "ab"]
    found = compare_systems([sides[0], replace(sides[1], name="c")], ComparisonOptions(top_k=2))
    assert [d.aggregator for d in found.differences] == ["pass@1", "mean"]


def test_a_number_that_the_candidates_of_one_side_cannot_give_is_left_out_and_said():
    wide, narrow = (
        side("a", [[1, 0, 1]] * 12, aggregate=("pass@3", "mean")),
        side("b", [[1, 0]] * 12, aggregate=("mean",)),
    )
    found = compare_systems([wide, narrow])
    assert [d.aggregator for d in found.differences] == ["mean"]
    assert "pass@3 is not compared: it cannot be computed for b" in list(map(str, found.warnings))


def test_no_headline_says_no_difference_while_a_row_is_significant():
    # every candidate of the second fails in turn: all_pass falls, any_pass stays, and the mean hardly moves
    a = [[1] * 20] * 40
    b = [[0] + [1] * 19] * 8 + [[1] * 20] * 32
    found = compare_systems([side("a", a), side("b", b)], ComparisonOptions(use="any"))
    assert found.main == ("pass", "any_pass")
    assert not found.main_differences[0].holds
    assert any(d.holds for d in found.differences)
    text = found.headline.text
    assert text.startswith("any_pass (intended use: any) 1.000 to 1.000, difference 0.000")
    assert "not significant; but b against a is worse on " in text
    assert "No significant difference" not in text


def test_a_number_that_goes_the_other_way_is_in_the_headline():
    # the second always gives one right answer of four: any_pass rises, all_pass falls
    a, b = [[1, 1, 1, 1]] * 10 + [[0, 0, 0, 0]] * 30, [[1, 0, 0, 0]] * 40
    text = compare_systems([side("a", a), side("b", b)], ComparisonOptions(use="any")).headline.text
    assert text.startswith("b is better than a on any_pass (intended use: any): 0.250 to 1.000")
    assert "; but it is worse on all_pass (-0.250" in text


def test_runs_of_different_uses_are_summarised_by_the_mean_and_it_is_said():
    sides = [replace(side(n, [[1, 0]] * 12), use=use) for n, use in (("a", "any"), ("b", "vote"))]
    found = compare_systems(sides)
    assert found.main == ("pass", "mean")
    assert "different-uses" in [w.code for w in found.warnings]


def test_metrics_that_are_not_shared_are_refused_with_what_each_has():
    labels = side("a", [[1, 0]], ["x"])
    scores = Side(name="b", result=kofn.score([{"id": "x", "scores": [0.5, 1.0]}]))
    with pytest.raises(InputError, match=r"no metric in common: a has pass; b has score: .*--metric"):
        compare_systems([labels, scores])


def test_names_nothing_answers_to_are_one_line():
    sides = [side(n, [[1, 0]], ["x"]) for n in "ab"]
    for ask in (
        ComparisonOptions(aggregate=("any_pas",)),
        ComparisonOptions(metrics=("numric",)),
        ComparisonOptions(by=("knid",)),
        ComparisonOptions(verdict="majorty"),
    ):
        with pytest.raises(UnknownName, match="unknown"):
            compare_systems(sides, ask)
    with pytest.raises(InputError, match=r"a: pass@9 is undefined: the largest set has 2"):
        compare_systems(sides, ComparisonOptions(aggregate=("pass@9",)))
    with pytest.raises(InputError, match="at least two"):
        compare_systems(sides[:1])
    with pytest.raises(InputError, match="two sides are called 'a'"):
        compare_systems([sides[0], sides[0]])
    with pytest.raises(InputError, match="alpha"):
        ComparisonRules(alpha=2)


@pytest.mark.parametrize(
    ("verdict", "changed"), [("mean >= 0.6", {"c0": "up"}), ("all_pass", {"c1": "up"}), ("any_pass", {}), (None, {})]
)
def test_the_verdict_may_be_any_number_with_a_bound(verdict, changed):
    a, b = side("a", [[1, 0, 0], [1, 1, 0]]), side("b", [[1, 1, 0], [1, 1, 1]])
    found = compare_systems([a, b], ComparisonOptions(verdict=verdict))
    assert {c.case: c.way for c in found.changed} == changed
    assert found.verdict == (verdict or "any_pass")


def test_a_verdict_that_nobody_can_read_says_what_is_missing():
    sides = [side(n, [[1, 0]], ["x"]) for n in "ab"]
    with pytest.raises(InputError, match="--verdict 'std >= 1'"):
        compare_systems(sides, ComparisonOptions(verdict="std"))
    with pytest.raises(InputError, match="has no interval"):
        compare_systems(sides, ComparisonOptions(verdict="mean.low >= 1"))


def test_a_number_picked_and_graded_by_one_score_is_remarked():
    rows = [{"id": str(i), "scores": [i / 9, 0.5]} for i in range(5)]
    sides = [Side(name=n, result=kofn.score(rows)) for n in "ab"]
    found = compare_systems(sides, ComparisonOptions(aggregate=("selected",)))
    assert len(found.double_dipping) == 2
    assert compare_systems(sides, ComparisonOptions(aggregate=("mean",))).double_dipping == ()


# ways to grade


TEXTS = ["The answer is 4.", "4", "It is \\boxed{4}", "#### 5", "no idea", "4 of 5"]


def outputs(n=12):
    rng = random.Random(3)
    return [{"id": str(i), "reference": "4", "outputs": [rng.choice(TEXTS) for _ in range(3)]} for i in range(n)]


def graded(names, **more):
    return compare_graders(load_table(outputs(), ReadOptions()), by_extractor(names, GradingConfig()), **more)


def test_agreement_of_two_extractors_is_counted_by_candidate():
    found = graded(["number", "boxed"])
    (one,) = found.agreements
    by = [kofn.score(outputs(), extract=name, metric="numeric").scored[0].sets.passes for name in ("number", "boxed")]
    counts = one.counts
    assert counts["both_pass"] == int((by[0] & by[1]).sum())
    assert counts["only_a"] == int((by[0] > by[1]).sum())
    assert counts["only_b"] == int((by[1] > by[0]).sum())
    assert sum(counts.values()) == 36
    assert one.rates.kappa.point == pytest.approx(cohen_kappa(*by), abs=1e-12)
    assert found.differences[0].comparison.difference == pytest.approx(float(by[1].mean() - by[0].mean()))
    verdicts = [c for c in found.changed if c.way != "other"]
    assert len(verdicts) == counts["only_a"] + counts["only_b"]
    assert all(c.a[0].text == c.b[0].text for c in found.changed)
    assert all(c.a[0].answer != c.b[0].answer for c in found.changed)


def test_swapping_the_graders_turns_everything_round():
    there, back = graded(["number", "boxed"]), graded(["boxed", "number"])
    one, other = there.agreements[0], back.agreements[0]
    assert one.counts["only_a"] == other.counts["only_b"]
    assert one.rates.kappa.point == pytest.approx(other.rates.kappa.point)
    assert there.differences[0].comparison.difference == pytest.approx(-back.differences[0].comparison.difference)


def test_a_grader_that_gives_more_is_higher_and_not_better():
    rows = [{"id": str(i), "reference": "4", "outputs": ["It is 4."]} for i in range(12)]
    found = compare_graders(load_table(rows, ReadOptions()), by_extractor(["last_line", "number"], GradingConfig()))
    assert [d.word for d in found.differences] == ["higher"]


def test_three_graders_are_compared_with_the_first_or_every_two():
    names = ["number", "boxed", "last_line"]
    assert [(a.name_a, a.name_b) for a in graded(names).agreements] == [("number", "boxed"), ("number", "last_line")]
    assert len(graded(names, all_pairs=True).agreements) == 3


def test_labels_may_be_one_of_the_metrics():
    rows = [{**row, "outputs": [{"text": t, "pass": "4" in t} for t in row["outputs"]]} for row in outputs()]
    found = compare_graders(load_table(rows, ReadOptions()), by_metric(["pass", "numeric"], GradingConfig()))
    (one,) = found.agreements
    assert one.counts["only_a"] > 0  # "4 of 5" holds a 4 and says 5
    assert one.counts["only_b"] == 0
    assert found.facts["metrics"] == ["pass", "numeric"]


def test_one_grader_or_the_same_twice_is_refused():
    with pytest.raises(InputError, match="at least two extractors"):
        by_extractor(["number"], GradingConfig())
    with pytest.raises(InputError, match="metric numeric is there twice"):
        by_metric(["numeric", "numeric"], GradingConfig())


def test_graders_on_real_outputs_agree_with_their_labels(sets_folder):
    table = load_table(sets_folder / "nemo_math_50x3.jsonl", ReadOptions())
    found = compare_graders(table, by_metric(["pass", "numeric(or_exact=True)"], GradingConfig()))
    (one,) = found.agreements
    assert sum(one.counts.values()) + one.n_ungraded == 150
    assert one.rates.agreement.point > 0.8
    assert found.differences[0].comparison.n == 50


# selectors


def test_selectors_on_real_outputs_give_the_published_numbers(sets_folder, oracles):
    want = oracles["maj_rm.qwen_math100"]["expected"]
    result = kofn.score(sets_folder / "qwen_math100x8.jsonl")
    two = [Selector(name=name, by=name) for name in ("first", "score")]
    found = compare_selectors(result, two, "pass", GradingConfig())
    first, reward = found.selections
    assert reward.selected.point == pytest.approx(want["rm8_argmax"], abs=1e-12)
    assert (first.mean.point, first.oracle.point) == pytest.approx((want["mean"], want["any8"]), abs=1e-12)
    d = found.differences[0].comparison
    assert d.difference == pytest.approx(reward.selected.point - first.selected.point, abs=1e-12)
    assert d.wins - d.losses == round(100 * d.difference)
    assert {c.way for c in found.changed} == {"up", "down", "other"}
    assert sum(c.way == "up" for c in found.changed) == d.wins
    assert found.double_dipping == ()


def test_halves_of_real_candidates_are_compared_as_two_systems(sets_folder):
    sets = kofn.score(sets_folder / "qwen_math100x8.jsonl").scored[0].sets
    passes = sets.passes.reshape(100, 8)
    halves = [side(name, part.tolist()) for name, part in (("a", passes[:, :4]), ("b", passes[:, 4:]))]
    found = by_number(compare_systems(halves))
    mean = found["mean", None].comparison
    assert mean.difference == pytest.approx(passes[:, 4:].mean() - passes[:, :4].mean(), abs=1e-12)
    assert mean.n == 100
    assert not any(d.holds for d in found.values())


def picked(rows, *selectors, evaluator="pass", judges=None):
    result = kofn.score(rows)
    if judges is not None:
        result = replace(result, judges=judges)
    return compare_selectors(
        result, [Selector(name=s, by=s) if isinstance(s, str) else s for s in selectors], evaluator, GradingConfig()
    )


ROWS = [
    {"id": f"q{i}", "passes": [i % 2, 1], "scores": [0.2, 0.1 * (i % 4)], "texts": ["long text", "x"]} for i in range(8)
]


def test_picks_that_have_a_candidate_in_common_are_alike():
    assert picked(ROWS, "first", "length").changed == ()
    changed = picked(ROWS, "length", Selector(name="short", by="length", prefer="low")).changed
    assert len(changed) == 8
    assert {c.way for c in changed} == {"up", "other"}


def test_a_metric_may_pick_and_grading_it_by_itself_is_remarked():
    apart = picked(ROWS, "first", "score")
    assert apart.double_dipping == ()
    (warning,) = picked(ROWS, "first", "score", evaluator="score").double_dipping
    assert str(warning).startswith("score picks by `score` and is graded by it: double-dipping")


def test_the_same_judge_or_model_on_both_ends_is_remarked():
    judge = {"fingerprint": "f" * 16, "models": ["openai:judge"]}
    named = Selector(name="mine", by="score", model="openai:judge")
    (warning,) = picked(ROWS, "first", named, judges={"pass": judge}).double_dipping
    assert "the same model (openai:judge)" in str(warning)
    (warning,) = picked(ROWS, "first", "score", judges={"pass": judge, "score": judge}).double_dipping
    assert "the same judge" in str(warning)
    other = {"fingerprint": "0" * 16, "models": ["another"]}
    assert picked(ROWS, "first", "score", judges={"pass": judge, "score": other}).double_dipping == ()


def test_a_selector_whose_fingerprint_is_the_judges_is_remarked():
    selector = Selector(name="s", by="score", model="m", prompt="p")
    scored = kofn.score(ROWS).scored[0]
    judges = {"pass": {"fingerprint": selector.fingerprint(), "models": []}}
    fault = selector_double_dipping(scored, selector, judges)
    assert fault == {"by": "score", "metric": "pass", "fault": "same-judge"}
    assert selector_double_dipping(scored, selector, {}) is None


def test_selectors_that_cannot_be_told_apart_are_remarked_or_refused():
    two = [Selector(name=name, by="first") for name in ("a", "b")]
    assert "a and b are the same selector under two names" in map(str, picked(ROWS, *two).warnings)
    with pytest.raises(InputError, match="two selectors are called 'first'"):
        picked(ROWS, "first", "first")
    with pytest.raises(InputError, match="at least two selectors"):
        picked(ROWS, "first")
    with pytest.raises(UnknownName, match="selector 'scor': did you mean score"):
        picked(ROWS, "first", "scor")


def test_scores_without_a_threshold_are_remarked():
    rows = [{"id": str(i), "scores": [0.5, 2.0 + i]} for i in range(4)]
    assert any("--threshold" in w for w in map(str, picked(rows, "first", "random", evaluator="score").warnings))
    sides = [Side(name=n, result=kofn.score(rows)) for n in "ab"]
    assert sum("--threshold" in w for w in map(str, compare_systems(sides).warnings)) == 1  # the same of both sides


def test_values_of_the_picks_are_compared_where_they_are_more_than_pass_and_fail():
    found = picked(ROWS, "first", "length", evaluator="score")
    assert [d.aggregator for d in found.differences] == ["selected", "selected_pass"]
    assert found.differences[0].comparison.a == pytest.approx(0.2)
    assert found.selections[0].selected.point == pytest.approx(0.2)
    assert found.selections[0].selected_pass.point == found.differences[1].comparison.a
    assert [d.aggregator for d in picked(ROWS, "first", "length").differences] == ["selected"]


@given(flags, st.randoms(use_true_random=False))
def test_levels_are_means_over_the_cases_that_all_sides_have(lists, rng):
    ids = [f"c{i}" for i in range(len(lists))]
    kinds = [rng.choice("xy") for _ in ids]
    order = rng.sample(range(len(ids)), len(ids))[: max(1, len(ids) - 1)]
    weights = np.array([rng.choice([0.0, 1.0, 2.5]) for _ in order])
    other = [[rng.randint(0, 1) for _ in lists[i]] for i in order]
    b = side("b", other, [ids[i] for i in order], weights=weights)
    found = compare_systems([side("a", lists, kind=kinds), b], ComparisonOptions(aggregate=("mean",), by=("kind",)))
    for level in found.levels:
        at = [j for j, i in enumerate(order) if level.segment in (None, f"kind={kinds[i]}")]
        assert level.n == len(at)
        if at:
            w = weights[at] if weights[at].any() else np.ones(len(at))
            means = (np.average([np.mean(lists[order[j]]) for j in at], weights=w),
                     np.average([np.mean(other[j]) for j in at], weights=w))  # fmt: skip
            assert level.values == pytest.approx(means)


def test_without_bodies_changed_cases_are_the_same_and_have_no_candidates():
    sides = [side(n, lists) for n, lists in zip("ab", noise(np.random.default_rng(3)), strict=True)]
    whole, bare = compare_systems(sides), compare_systems(sides, bodies=False)
    assert whole.changed
    assert bare.changed == tuple(replace(c, a=(), b=(), input=None, reference=None) for c in whole.changed)
    assert bare.differences == whole.differences
    assert bare.graded_by == "pass"
