"""Best of n, explored: the script chooses as Python does, sliders move the recommendation, large runs answer."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from tests.browsing import new_context
from tests.viewer.runs import EVIL, small_rows, write
from tests.viewer.serving import ask, open_in, served

from kofn.analysis.best_of import BestOfOptions, best_of
from kofn.analysis.curve_report import SpendingBounds, recommend_n
from kofn.analysis.selectors import Selector
from kofn.cli.analysis_verbs import curve_command as command
from kofn.core.candidate_sets import CandidateSets
from kofn.core.format import format_dollars, format_rate, format_seconds
from kofn.errors import InputError
from kofn.render.curve_text import curve_cells
from kofn.runs.load import load_graded
from kofn.runs.record import load_run
from kofn.scoring.configuration import GradingConfig
from kofn.viewer import best_page
from kofn.viewer.best_page import BestControls, choose_n, with_cost

TEMPLATES = Path(best_page.__file__).parent / "templates"
PICKS = EVIL.replace("\0", "")  # a column of selector scores that is called so
GAINS = (None, 0.5, 20.0, 100.0, 1234.5)
TIMES = (None, 0.001, 3.0, 250.0)
BUDGETS = (None, 0.0001, 0.0021)


def rows(n=60, k=6, seed=3, **more):
    """Cases of unequal difficulty, with costs, times and two columns that can pick."""
    rng = random.Random(seed)
    out = []
    for i in range(n):
        p = rng.random() ** 1.5
        right = [rng.random() < p for _ in range(k)]
        outputs = [
            {
                "text": f"the answer is {4 if ok else rng.randrange(5, 8)}.{' so' * rng.randrange(5)}",
                "cost": 0.002 * rng.random(),
                "seconds": rng.expovariate(0.4),
                "selector.reward": 0.3 * ok + rng.random(),
                "selector.loss": rng.random() - 0.3 * ok,
            }
            for ok in right
        ]
        out.append({"id": f"q{i:03d}", "input": "2 + 2?", "reference": "4", "outputs": outputs, **more})
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    write(root / "full", rows())
    plain = [
        {"id": f"q{i}", "reference": "4", "outputs": ["4", "5", "4"] if i % 3 else ["5", "4", "6"]} for i in range(40)
    ]
    write(root / "plain", plain)
    write(root / "single", [{"id": f"q{i}", "reference": "4", "outputs": ["4" if i % 2 else "5"]} for i in range(40)])
    rng = random.Random(5)
    scores = [{"id": f"q{i}", "scores": [round(rng.random(), 3) for _ in range(5)]} for i in range(40)]
    write(root / "scores", scores, aggregate=("mean", "any_pass"))
    write(root / "ungraded", [{"id": "a", "outputs": ["x", "y"]}], aggregate=("agreement",))
    evil = small_rows(8, evil=EVIL)
    for row in evil:
        row["outputs"] = [{**output, f"selector.{PICKS}": i} for i, output in enumerate(row["outputs"])]
    write(root / "evil", evil)
    return root


@pytest.fixture(scope="module")
def base(folder):
    with served(folder) as address:
        yield address


def explored(browser, base, path, **how):
    page = open_in(browser, base, path, **how)
    page.wait_for_selector("html[data-explored]", state="attached")
    return page


def drag(page, name, value):
    """The slider as somebody drags it: positions in between are passed too."""
    page.eval_on_selector(
        f"#{name}-range",
        """(slider, to) => { for (const at of [slider.value, to]) { slider.value = at;
           slider.dispatchEvent(new Event("input", { bubbles: true })); }
           slider.dispatchEvent(new Event("change", { bubbles: true })); }""",
        value,
    )


# --- the rule in the browser is the rule in Python


@pytest.fixture(scope="module")
def script(browser):
    """The functions of recommend_n.js, in a page that has nothing else."""
    page = new_context(browser).new_page()
    page.evaluate(f"() => {{ window.kofn = {{}};\n{(TEMPLATES / 'recommend_n.js').read_text()}\n}}")
    yield page
    page.context.close()


@cache
def tables():
    """Tables of every measure, with equal and unequal sets, ties and values that lie just between two roundings."""
    rng, found = random.Random(1), []
    for n_cases, sizes in ((128, (6, 6)), (16, (4, 4)), (37, (3, 9)), (8, (2, 2)), (5, (1, 1))):
        lists = [[int(rng.random() < i / n_cases) for _ in range(rng.randint(*sizes))] for i in range(n_cases)]
        if n_cases == 128:  # a few sets are smaller, and unlike the others: values at k and sums of gains part
            lists[-4:] = [[0], [0, 0], [1, 0], [0, 0, 0]]
            lists += [[1, 1, 0, 0, 1, 0]] * 10
        answers = [[1 if ok else rng.randrange(2, 4) for ok in one] for one in lists]
        scores = [[rng.random() + 0.4 * ok for ok in one] for one in lists]
        sets = CandidateSets.from_lists(lists, answers=answers, selectors={"judge": scores})
        count = len(sets.values)
        costs = [0.001 * rng.random() for _ in range(count)]
        taken = [0.0 if n_cases == 8 else rng.expovariate(0.4) for _ in range(count)]
        sets = replace(sets, costs=np.array(costs), seconds=np.array(taken))
        for measure in ("any", "selected", "majority"):
            bounds = BestOfOptions(measure=measure, selector=Selector(name="judge", by="judge"))
            found.append(best_of(sets, GradingConfig(interval="t"), bounds))
    return found


def given(table):
    return {"measure": table.measure, "cost": table.cost, "tokens": None, "rows": [r.to_dict() for r in table.rows]}


def settings(table):
    """A grid of (gain, latency, budget, sequential, cost), and every place where a choice turns."""
    grid = list(product(GAINS, TIMES, BUDGETS, (False, True), (None, 0.0005, 3.0)))
    for row in table.rows:
        turns = [
            (row.gain_per_cost, "gain"),
            (row.seconds, "latency"),
            (row.seconds_sequential, "sequential"),
            (row.cost, "budget"),
        ]
        for value, name in turns:
            if value is not None and value > 0:
                gain, latency, budget = (value if name == one else None for one in ("gain", "latency", "budget"))
                in_turn = name == "sequential"
                grid.append((gain, value if in_turn else latency, budget, in_turn, None))
    return grid


def test_script_and_python_choose_the_same_n_for_the_same_reason(script):
    for table in tables():
        grid = settings(table)
        said = script.evaluate(
            """([table, grid]) => grid.map(([gain, latency, budget, sequential, cost]) => {
                 const { priced, choose } = window.kofn.best;
                 const { n, reason } = choose(priced(table, cost), { gain, latency, budget, sequential });
                 return [n, reason]; })""",
            [given(table), [list(one) for one in grid]],
        )
        for (gain, latency, budget, sequential, cost), found in zip(grid, said, strict=True):
            limits = SpendingBounds(gain=gain, latency=latency, budget=budget, sequential=sequential)
            expected = recommend_n(with_cost(table, cost), limits)
            assert found == [expected.n, expected.reason], (table.measure, limits, cost)


def test_without_a_cost_a_candidate_counts_as_one_in_both(script):
    for table in tables():
        free = replace(
            table, cost=None, rows=tuple(replace(row, cost=None, gain_per_cost=row.gain) for row in table.rows)
        )
        for gain in (0.001, 0.02, 0.1, 0.5):
            n, reason = script.evaluate(
                """([table, gain]) => { const { priced, choose } = window.kofn.best;
                   const found = choose(priced(table, null), { gain, latency: null, budget: null, sequential: false });
                   return [found.n, found.reason]; }""",
                [given(free), gain],
            )
            assert (
                n
                == recommend_n(with_cost(table, 1.0), SpendingBounds(gain=gain)).n
                == choose_n(free, BestControls(gain=gain)).n
            )
            assert "dollar" not in reason
            assert "$" not in reason


@pytest.mark.browser
def test_numbers_are_written_as_python_writes_them(script):
    rng = random.Random(2)
    values = [
        0.0,
        0.0625,
        0.3125,
        0.0005,
        0.9995,
        1.125,
        12.5,
        99.96,
        100.0,
        999.5,
        1000.5,
        1234.5,
        2500.0,
        1e-5,
        2.5e-7,
    ]
    values += [k / 16 for k in range(64)] + [10 ** rng.uniform(-6, 5) for _ in range(300)]
    said = script.evaluate(
        """(values) => { const { fixed, seconds, dollars, dear } = window.kofn.best;
           return values.map((x) => [fixed(x, 3), seconds(x), dollars(x), dear(x)]); }""",
        values,
    )
    for x, found in zip(values, said, strict=True):
        assert found == [f"{x:.3f}", format_seconds(x), format_dollars(x), format_rate(x)]


@pytest.mark.browser(quick=1)
def test_what_python_refuses_the_script_refuses(script):
    table = tables()[0]
    table = replace(table, cost=None, rows=tuple(replace(r, cost=None, seconds=None) for r in table.rows))
    for bounds in ({"budget": 1.0}, {"latency": 1.0}):
        with pytest.raises(InputError):
            recommend_n(table, SpendingBounds(**bounds))
        found = script.evaluate(
            "([table, asked]) => window.kofn.best.choose(window.kofn.best.priced(table, null), asked)",
            [given(table), {"gain": None, "latency": None, "budget": None, "sequential": False, **bounds}],
        )
        assert found["n"] is None
        assert "not known" in found["problem"]


# --- the table of the server


@pytest.mark.long(quick=6)
@pytest.mark.parametrize("selector", ["", "reward", "loss", "vote", "length", "first", "random"])
@pytest.mark.parametrize("measure", ["any", "selected", "majority"])
def test_the_table_is_that_of_kofn_curve(base, folder, selector, measure):
    said = ask(base, f"/run/full/-/best.json?selector={selector}&measure={measure}&ends=1").json()
    where = load_graded(folder / "full")
    counts = measure if selector or measure != "selected" else "any"
    by = Selector(name=selector, by=selector) if selector else None
    expected = best_of(where.metric().sets, where.options, BestOfOptions(measure=counts, selector=by))
    assert said["key"]["measure"] == counts
    assert said["table"]["rows"] == [row.to_dict() for row in expected.rows]
    assert said["table"]["cost"] == expected.cost


def test_a_threshold_and_the_lowest_score_are_the_servers(base, folder):
    said = ask(base, "/run/scores/-/best.json?threshold=0.8").json()
    sets = load_run(folder / "scores").result.scored[0].sets
    assert [r["any"] for r in said["table"]["rows"]] == [
        r.any for r in best_of(sets.passing_from(0.8), GradingConfig(seed=0)).rows
    ]
    low, high = (
        ask(base, f"/run/full/-/best.json?selector=loss&low={low}").json()["table"]["rows"][-1]["selected"]
        for low in ("1", "")
    )
    assert low > high


def test_what_nobody_knows_is_said_in_one_line(base):
    for bounds, words in (
        ("selector=os:system", "unknown selector 'os:system'"),
        ("metric=other", "unknown metric 'other'"),
        ("threshold=much", "threshold: expected a number, not 'much'"),
    ):
        refused = ask(base, f"/run/full/-/best.json?{bounds}")
        assert (refused.status, words in refused.json()["problem"]) == (422, True)
    assert "nothing is graded" in ask(base, "/run/ungraded/-/best").text
    assert ask(base, "/run/full/-/best?cost=-1").status == 422
    assert ask(base, "/run/nowhere/-/best").status == 404


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ("plain", ["carry no cost", "carry no time", "no column of selector scores"]),
        ("single", ["Most cases have one candidate: there is no curve"]),
    ],
)
def test_a_page_says_what_its_run_cannot_tell(base, run, words):
    page = ask(base, f"/run/{run}/-/best").text
    for one in words:
        assert one in page


def test_without_script_the_form_asks_and_the_page_chooses(base, folder):
    page = ask(base, "/run/full/-/best?gain=40&cost=0.001&selector=reward&measure=selected").text
    where = load_graded(folder / "full")
    bounds = BestOfOptions(measure="selected", selector=Selector(name="reward", by="reward"), cost=0.001)
    expected = recommend_n(best_of(where.metric().sets, where.options, bounds), SpendingBounds(gain=40))
    assert f'<span id="word">n = {expected.n}</span>' in page
    assert re.search(r'id="gain"[^>]*value="40"', page)
    assert re.search(r'<option value="reward"[^>]* selected', page)


def test_a_large_run_answers_with_values_first_and_intervals_when_asked(folder, monkeypatch):
    monkeypatch.setattr(best_page, "MANY", 100)
    with served(folder) as base:
        first = ask(base, "/run/full/-/best.json").json()
        whole = ask(base, "/run/full/-/best.json?ends=1").json()
        again = ask(base, "/run/full/-/best.json?measure=majority").json()
    assert (first["ends"], whole["ends"], again["ends"]) == (False, True, True)
    assert all(row["any_low"] is None for row in first["table"]["rows"])
    assert [row["any"] for row in first["table"]["rows"]] == [row["any"] for row in whole["table"]["rows"]]
    assert all(row["any_low"] < row["any"] < row["any_high"] for row in whole["table"]["rows"])


def test_a_table_is_made_once(base, monkeypatch):
    ask(base, "/run/plain/-/best.json?selector=first")
    monkeypatch.setattr(best_page, "best_of", None)
    monkeypatch.setattr(best_page, "best_of_report", None)
    assert ask(base, "/run/plain/-/best.json?selector=first").status == 200


# --- in a browser


def test_dragging_the_gain_changes_the_recommendation_and_the_address(browser, base, folder):
    page = explored(browser, base, "/run/full/-/best")
    assert page.text("#word") == "No n chosen"
    seen = []
    for position in (60, 110, 150, 185):
        drag(page, "gain", position)
        gain = float(page.input_value("#gain"))
        where = load_graded(folder / "full")
        expected = recommend_n(best_of(where.metric().sets, where.options), SpendingBounds(gain=gain))
        assert page.text("#word") == f"n = {expected.n}"
        assert page.text("#reason") == f"{expected.reason[0].upper()}{expected.reason[1:]}."
        assert float(parse_qs(urlsplit(page.url).query)["gain"][0]) == gain
        seen.append(expected.n)
    assert seen == sorted(seen, reverse=True)
    assert len(set(seen)) > 2
    drag(page, "gain", 0)
    assert page.text("#word") == "No n chosen"
    assert urlsplit(page.url).query == ""
    page.clean()
    page.context.close()


def test_a_shared_address_shows_the_same_again(browser, base):
    page = explored(browser, base, "/run/full/-/best?selector=reward&measure=selected&gain=30&n=2&latency=4")
    first = [page.text(one) for one in ("#word", "#reason", "#stats", "#by-k")]
    drag(page, "budget", 120)
    page.select_option("#selector", "vote")
    page.wait_for_selector('html[data-explored*="vote"]', state="attached")
    changed, address = [page.text(one) for one in ("#word", "#reason", "#stats", "#by-k")], page.url
    assert changed != first
    again = explored(browser, base, address.removeprefix(base))
    assert [again.text(one) for one in ("#word", "#reason", "#stats", "#by-k")] == changed
    assert again.input_value("#selector") == "vote"
    page.clean()
    page.context.close()
    again.context.close()


def test_keys_move_n_and_everything_follows_it(browser, base):
    page = explored(browser, base, "/run/full/-/best?gain=20")
    page.focus("#n-range")
    page.keyboard.press("Home")
    assert page.text("#h-at") == "With one candidate"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.text("#h-at") == "With 3 candidates"
    assert page.input_value("#n") == "3"
    assert page.get_attribute("#n-range", "aria-valuetext") == "3"
    assert "any@3" in page.text("#stats")
    assert page.text("#by-k .is-at th").startswith("3")
    marks = page.eval_on_selector_all("[data-chart=curve] svg text", "all => all.map((t) => t.textContent)")
    assert "n = 3" in marks
    assert any(re.fullmatch(r"recommended: \d", text) for text in marks)
    page.context.close()


def test_the_numbers_of_n_are_those_of_the_table(browser, base, folder):
    page = explored(browser, base, "/run/full/-/best?selector=reward&n=4&gain=10")
    where = load_graded(folder / "full")
    table = best_of(where.metric().sets, where.options, BestOfOptions(selector=Selector(name="reward", by="reward")))
    row = table.rows[3]
    stats = page.text("#stats")
    for value in (row.any, row.any_low, row.any_high, row.selected, row.selected_low, row.majority, row.independent):
        assert f"{value:.3f}" in stats
    times = (format_seconds(row.seconds), format_seconds(row.seconds_sequential))
    for text in (f"{row.gain:.3f}", format_dollars(row.cost), *times):
        assert text in stats
    header, expected = curve_cells(table, 0.95)
    assert page.eval_on_selector_all("#by-k thead th", "all => all.map((c) => c.textContent)") == list(header)
    found = page.eval_on_selector_all(
        "#by-k tbody tr", "all => all.map((r) => [...r.cells].map((c) => c.firstChild.textContent))"
    )
    assert found == [list(one) for one in expected]
    page.context.close()


def test_a_dragged_threshold_asks_for_another_table(browser, base, folder):
    page = explored(browser, base, "/run/scores/-/best")
    assert page.is_visible("#threshold-range")
    drag(page, "threshold", 0.5)
    page.wait_for_selector('html[data-explored*="threshold=0.5"]', state="attached")
    sets = load_run(folder / "scores").result.scored[0].sets.passing_from(0.5)
    assert f"{best_of(sets, GradingConfig()).rows[-1].any:.3f}" in page.text("#stats")
    page.clean()
    page.context.close()


def test_intervals_of_a_large_run_come_after_its_values(browser, folder, monkeypatch):
    monkeypatch.setattr(best_page, "MANY", 100)
    with served(folder) as base:
        page = explored(browser, base, "/run/full/-/best")
        page.wait_for_selector("#stats .stat:first-child .detail")
        assert "Bands are 95% intervals" in page.text("figcaption")
        page.wait_for_selector("#status:empty", state="attached")
        page.context.close()


def test_a_refusal_leaves_the_table_that_was_there(browser, base):
    page = explored(browser, base, "/run/full/-/best")
    before = page.text("#by-k")
    page.eval_on_selector("#selector", "s => s.append(new Option('gone', 'gone'))")
    page.select_option("#selector", "gone")
    page.wait_for_selector('#status:has-text("unknown selector")')
    assert page.text("#by-k") == before
    page.context.close()


@pytest.mark.parametrize(
    ("run", "width", "scheme"),
    [
        ("full", 390, "light"),
        ("evil", 390, "dark"),
        ("evil", 1400, "dark"),
        ("single", 390, "light"),
        ("plain", 760, "light"),
    ],
)
def test_the_page_fits_is_drawn_and_runs_nothing_of_the_run(browser, base, run, width, scheme):
    page = explored(browser, base, f"/run/{run}/-/best?gain=20", width=width, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.eval_on_selector_all("[data-chart] .plot > svg", "all => all.length") == (0 if run == "single" else 2)
    assert page.evaluate("window.pwned") is None
    unnamed = page.eval_on_selector_all(
        "#levers input, #levers select", "all => all.filter((i) => !i.labels.length && !i.ariaLabel).map((i) => i.id)"
    )
    assert unnamed == []
    page.clean()
    page.context.close()


def test_a_selector_of_any_name_can_be_chosen(browser, base):
    page = explored(browser, base, "/run/evil/-/best?selector=")
    page.select_option("#selector", PICKS)
    page.wait_for_selector("#keys:has-text('pick')")
    assert "selected@4" in page.text("#stats")
    assert page.evaluate("window.pwned") is None
    page.clean()
    page.context.close()


def test_the_command_that_is_shown_says_the_same(browser, base, folder):
    import shlex

    from click.testing import CliRunner

    page = explored(browser, base, "/run/full/-/best?selector=reward&gain=30&cost=0.002&latency=6&sequential=1")
    words = shlex.split(page.text("#terminal code"))
    assert words[:2] == ["kofn", "curve"]
    done = CliRunner().invoke(command, [str(folder / words[2]), *words[3:]])
    assert done.exit_code == 0, done.output
    reason = " ".join(done.output.split())
    assert f"choose {page.text('#word')}: {page.text('#reason')[:-1].replace('With', 'with', 1)}" in reason
    page.context.close()
