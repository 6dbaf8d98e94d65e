"""Prices: which one a model gets, what a file of one's own changes, and token counts where a reply has none."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

import pytest
from tests.embedded import embedded_server

from kofn.errors import InputError
from kofn.generate.pricing import Prices, count_tokens, prompt_tokens, usage_of
from kofn.models.base import Message, Reply

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["embedded_server"]


@pytest.fixture
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KOFN_PRICES", raising=False)
    return tmp_path


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


MINE = "mine: {models: {'openai:gpt-4o': {input: 1, output: 2}, 'openai:house-*': {input: 3, output: 4}}}"


def test_an_unknown_price_is_none_and_a_local_model_costs_nothing():
    prices = Prices.shipped()
    assert prices.cost("openai:gpt-99", 1000, 1000) is None
    assert not prices.known("openai:gpt-99")
    for local in ("smollm2", "gguf:/a/b.gguf", "hf:base+adapter", "replay:x.jsonl", "fake:m:f", "command:./ask"):
        assert prices.cost(local, 1000, 1000) == 0.0


@pytest.mark.parametrize(
    ("model", "dollars"),
    [
        ("openai:gpt-4o", 2.5),
        ("openai:gpt-4o-2024-08-06", 2.5),  # a dated release costs what the model costs ...
        ("openai:gpt-4o-2024-05-13", 5.0),  # ... unless it has a price of its own
        ("openai:gpt-4o-mini", 0.15),
        ("openai:gpt-4o-audio-preview", None),  # a name that begins alike is another model
        ("openai:gpt-4o@https://proxy.example/v1", 2.5),
        ("openai:gpt-4o@http://127.0.0.1:4000/v1", 2.5),  # a proxy on this machine still pays
        ("openai:llama@http://127.0.0.1:8000/v1", 0.0),
        ("openai:llama@http://[::1]:8000/v1", 0.0),
        ("openai:llama@https://example.org/v1", None),
        ("anthropic:claude-3-5-haiku-latest", 0.8),
    ],
)
def test_a_model_is_priced_by_its_name(model, dollars):
    assert Prices.shipped().cost(model, 1_000_000, 0) == dollars


def test_a_long_prompt_has_its_own_price():
    prices = Prices.shipped()
    assert prices.cost("anthropic:claude-haiku-5-5", 100_000, 1000) == pytest.approx(0.0105)
    assert prices.cost("anthropic:claude-haiku-5-5", 100_001, 1000) == pytest.approx(0.0525005)


def test_input_from_the_cache_costs_less_where_the_vendor_says_so():
    prices = Prices.shipped()
    assert prices.cost("openai:gpt-4.1", 1_000_000, 0, cached_in=1_000_000) == 0.5
    assert prices.cost("openai:gpt-3.5-turbo", 1_000_000, 0, cached_in=1_000_000) == 0.5  # no cached price: the same


def test_every_shipped_list_of_a_vendor_says_when_and_where_it_was_read():
    prices = Prices.shipped()
    for model in ("anthropic:claude-haiku-4-5", "openai:gpt-4o"):
        origin = prices.origin(model)
        assert origin.as_of.year >= 2026
        assert origin.source.startswith("https://")
    assert prices.origin("openai:gpt-99") is None


def test_the_shipped_prices_are_plausible():
    """Output costs more than input, cached input less, and nothing is off by a factor of a thousand."""
    for vendor, prices in Prices.shipped().files[0].items():
        for price in prices.models.values():
            assert vendor == "local" or 0.01 < price.input < price.output < 200
            assert price.cached is None or price.cached < price.input


def test_a_file_of_ones_own_is_asked_before_the_shipped_prices(empty_folder):
    written(empty_folder / "kofn-prices.yaml", MINE)
    prices = Prices.load()
    assert prices.cost("openai:gpt-4o-2024-05-13", 1_000_000, 0) == 1.0
    assert prices.cost("openai:house-large", 0, 1_000_000) == 4.0
    assert prices.cost("openai:gpt-4o-mini", 1_000_000, 0) == 0.15


def test_the_option_wins_over_the_variable_and_the_variable_over_the_folder(empty_folder, monkeypatch):
    def one(name: str, dollars: int) -> Path:
        return written(empty_folder / name, f"mine: {{models: {{m: {{input: {dollars}, output: {dollars}}}}}}}")

    one("kofn-prices.yaml", 1)
    assert Prices.load().cost("m", 1_000_000, 0) == 1
    monkeypatch.setenv("KOFN_PRICES", str(one("by-variable.yaml", 2)))
    assert Prices.load().cost("m", 1_000_000, 0) == 2
    assert Prices.load(one("by-option.yaml", 3)).cost("m", 1_000_000, 0) == 3


def test_a_file_that_changed_is_read_again(empty_folder):
    path = written(empty_folder / "p.yaml", MINE)
    assert Prices.load(path).cost("openai:house-a", 1_000_000, 0) == 3
    written(path, MINE.replace("input: 3", "input: 7"))
    os.utime(path, ns=(1, 1))
    assert Prices.load(path).cost("openai:house-a", 1_000_000, 0) == 7


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mine: [", "not YAML"),
        ("mine: {models: {m: {input: -1, output: 2}}}", "mine > models > m > input: input should be greater than"),
        ("mine: {models: {m: {input: 1}}}", "mine > models > m > output: field required"),
        ("mine: {models: {m: {input: 1, output: 2, per: token}}}", "mine > models > m > per: extra inputs"),
        ("m: {input: 1, output: 2}", "m > models: field required"),
        ("[1, 2]", "the whole file: input should be a valid dictionary"),
    ],
)
def test_a_price_file_that_is_wrong_is_one_line_naming_file_and_field(text, said, empty_folder):
    path = written(empty_folder / "p.yaml", text)
    with pytest.raises(InputError) as problem:
        Prices.load(path)
    assert str(problem.value).startswith(f"{path}:")
    assert said in str(problem.value)
    assert "\n" not in str(problem.value)


def test_a_price_file_that_was_named_must_be_there(empty_folder, monkeypatch):
    with pytest.raises(InputError, match=r"nowhere.yaml: no such file"):
        Prices.load("nowhere.yaml")
    monkeypatch.setenv("KOFN_PRICES", "gone.yaml")
    with pytest.raises(InputError, match=r"gone.yaml: no such file"):
        Prices.load()
    with pytest.raises(InputError, match="cannot be read"):
        Prices.load(empty_folder)


def test_an_empty_file_changes_nothing(empty_folder):
    assert Prices.load(written(empty_folder / "p.yaml", "# nothing yet\n")).known("openai:gpt-4o")


def test_the_servers_numbers_are_taken_and_only_what_is_missing_is_counted():
    assert usage_of("hello there", Reply(text="hi", tokens_in=9, tokens_out=8)) == (9, 8, False)
    assert usage_of("hello there", Reply(text="hi you", tokens_in=9)) == (9, 2, True)
    assert usage_of("hello there", Reply(text="hi", tokens_out=1)) == (2, 1, True)


def test_reasoning_is_part_of_what_a_reply_cost():
    bare, thought = Reply(text="4"), Reply(text="4", reasoning="two and two")
    assert usage_of("?", thought).tokens_out > usage_of("?", bare).tokens_out + 2


def test_messages_count_the_marks_around_them():
    assert prompt_tokens((Message("user", "hello"), Message("user", "hello"))) == 2 * (count_tokens("hello") + 4)


# counts of the embedded model's own tokenizer
COUNTED = [
    ("The quick brown fox jumps over the lazy dog.", 10),
    ("Natalia sold 48/2 = 24 clips in May. Natalia sold 48+24 = 72 clips altogether.", 33),
    (r"So the value is \(\boxed{420}\), and \frac{1}{2} of it is 210.", 30),
]


@pytest.mark.parametrize(("text", "tokens"), COUNTED, ids=["prose", "arithmetic", "latex"])
def test_a_count_is_near_the_embedded_models_tokenizer(text, tokens):
    assert count_tokens(text) == pytest.approx(tokens, rel=0.15)


def test_counting_takes_time_linear_in_the_text():
    assert count_tokens("x" * 2_000_000) > 100_000
    assert count_tokens("\n" * 2_000_000 + " " * 2_000_000) > 0
    assert count_tokens("你好" * 1000) == 2000


def tokens_of(server: str, text: str) -> int:
    body = json.dumps({"content": text}).encode()
    request = Request(f"{server}/tokenize", body, {"Content-Type": "application/json"})  # noqa: S310 - loopback
    with urlopen(request) as reply:  # noqa: S310
        return len(json.load(reply)["tokens"])


def test_counts_of_real_outputs_are_as_good_as_the_documentation_says(embedded_server, sets_folder):
    for name, most in (("qwen_math100x8", 0.04), ("tot_writing_gpt4_io_100x10", 0.02)):
        rows = [json.loads(line) for line in (sets_folder / f"{name}.jsonl").read_text().splitlines()[:40]]
        texts = [row["outputs"][0]["text"] for row in rows]
        truth = sum(tokens_of(embedded_server, text) for text in texts)
        assert sum(map(count_tokens, texts)) == pytest.approx(truth, rel=most), name
