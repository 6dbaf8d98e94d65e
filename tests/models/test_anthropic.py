"""The Anthropic Messages API, on a real server that can be told to fail, and on the embedded model's own."""

from __future__ import annotations

import asyncio

import pytest
from tests.loopback import answer_of, serving
from tests.waiting import LONGEST

from kofn.errors import InputError, WorldError
from kofn.models.anthropic import Anthropic
from kofn.models.base import Message, Request, RequestRejected, RetryableError, Sampling

KEY = "sk-ant-0123456789abcdef"
ASKED = [{"role": "user", "content": "2+2?"}]


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch):
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "KOFN_API_KEY"):
        monkeypatch.delenv(name, raising=False)


async def collected(model, *requests):
    try:
        return [reply async for reply in model.generate(requests)]
    finally:
        await model.close()


def ask(spec, prompt="2+2?", timeout=LONGEST, options=None, **sampling):
    request = Request(prompt=prompt, sampling=Sampling(**sampling))
    (reply,) = asyncio.run(collected(Anthropic(spec, timeout=timeout, options=options), request))
    return reply


def test_a_text_becomes_one_message_and_the_version_is_said(monkeypatch):
    monkeypatch.setenv("KOFN_API_KEY", KEY)
    with serving() as server:
        reply = ask(f"claude-x@{server.root}", temperature=1.0, top_p=0.5, stop=("END", ""), max_tokens=50, seed=4)
        (sent,), (headers,) = server.requests, server.headers
    assert (sent["path"], sent["prompt"], sent["seed"]) == ("/v1/messages", ASKED, None)
    assert sent["body"] == {"max_tokens": 50, "temperature": 1.0, "top_p": 0.5, "stop_sequences": ["END"]}
    assert (headers["anthropic-version"], headers["x-api-key"]) == ("2023-06-01", KEY)
    assert "authorization" not in headers
    assert (reply.text, reply.finish) == (answer_of(ASKED, 0), "stop")
    assert (reply.tokens_in, reply.tokens_out) == (1, 4)


def test_system_messages_are_lifted_out():
    messages = (Message("system", "Be brief."), Message("user", "2+2?"), Message("system", "Be kind."))
    with serving() as server:
        ask(f"claude-x@{server.root}", messages)
        (sent,) = server.requests
    assert sent["prompt"] == ASKED
    assert sent["body"]["system"] == "Be brief.\n\nBe kind."


def test_the_base_url_may_end_in_v1_or_not():
    with serving() as server:
        assert ask(f"m@{server.root}/").text == ask(f"m@{server.url}/").text
        assert [sent["path"] for sent in server.requests] == ["/v1/messages"] * 2


def test_an_output_cut_at_the_limit_says_so():
    with serving() as server:
        reply = ask(f"m@{server.root}", max_tokens=2)
    assert (reply.text, reply.finish, reply.tokens_out) == ("The answer", "length", 2)


def test_white_space_that_the_api_would_refuse_still_stops():
    with serving() as server:
        reply = ask(f"m@{server.root}", stop=("\n", " "))
        assert "stop_sequences" not in server.requests[0]["body"]
    assert (reply.text, reply.finish) == ("The", "stop")


def test_thinking_is_reasoning_and_other_reasons_stay_as_they_are():
    with serving() as server:
        thought = ask(f"reasons@{server.root}", options={"thinking": {"type": "enabled", "budget_tokens": 1024}})
        assert server.requests[0]["body"]["thinking"]["budget_tokens"] == 1024
        refused, nothing = ask(f"refusal@{server.root}"), ask(f"null@{server.root}")
    assert (thought.reasoning, thought.text) == ("Because of 0.", answer_of(ASKED, 0))
    assert refused.finish == "refusal"
    assert (nothing.text, nothing.reasoning) == ("", None)


def test_a_wrong_count_is_no_count():
    with serving() as server:
        reply = ask(f"wrong-usage@{server.root}")
    assert (reply.text, reply.tokens_in, reply.tokens_out) == (answer_of(ASKED, 0), None, None)


@pytest.mark.parametrize(
    ("model", "kind", "said"),
    [
        ("429", RetryableError, "status 429"),
        ("529", RetryableError, "status 529"),
        ("500", RetryableError, "status 500"),
        ("cut", RetryableError, "not completed"),
        ("drop", RetryableError, "disconnected"),
        ("malformed", RetryableError, "no JSON"),
        ("no-choices", RetryableError, "without an answer"),
        ("hang", RetryableError, "within 0.3 s"),
        ("400", RequestRejected, "maximum context length"),
        ("413", RequestRejected, "413"),
        ("401", InputError, "KOFN_API_KEY"),
        ("404", InputError, "`404` does not exist"),
        ("credit", WorldError, "credit balance is too low"),
        ("unsupported", InputError, "refuses a parameter"),
    ],
)
def test_failures_are_told_apart(model, kind, said):
    with serving() as server:
        with pytest.raises(kind) as caught:
            ask(f"{model}@{server.root}", temperature=0.5, timeout=0.3 if model == "hang" else LONGEST)
        assert len(server.requests) <= 1
    assert said in str(caught.value)
    assert model != "429" or caught.value.after == 1


def test_a_temperature_above_one_is_refused_before_any_call():
    with serving() as server:
        with pytest.raises(InputError, match=r"temperature 1\.2: the Messages API takes 0 to 1"):
            ask(f"m@{server.root}", temperature=1.2)
        assert server.requests == []


def test_the_vendors_key_is_needed_for_the_vendor_and_stays_with_it(monkeypatch):
    with pytest.raises(InputError, match="set the environment variable ANTHROPIC_API_KEY"):
        Anthropic("claude-x")
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    model = Anthropic("claude-x")
    assert (model.name, model.base_url) == ("anthropic:claude-x", "https://api.anthropic.com")
    assert (model.concurrency, model.samples, model.chat, model.batch) == (8, 1, True, 1)
    with serving() as server:
        ask(f"m@{server.root}")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.root)
        ask("m")
        assert [headers.get("x-api-key") for headers in server.headers] == [None, KEY]


def test_no_error_repeats_the_key(monkeypatch):
    monkeypatch.setenv("KOFN_API_KEY", KEY)
    with serving() as server:
        model = Anthropic(f"401@{server.root}")
        with pytest.raises(InputError) as caught:
            asyncio.run(collected(model, Request(prompt="x")))
        assert server.headers[0]["x-api-key"] == KEY
    assert "***" in str(caught.value)
    assert KEY not in f"{model!r} {model.name} {model.describe()} {caught.value!r} {vars(model)}"


def test_the_embedded_server_answers_messages(embedded_server):
    messages = (Message("system", "Answer in one word."), Message("user", "What colour is grass?"))
    reply = ask(f"smollm2@{embedded_server}", messages, timeout=LONGEST, temperature=0.0, max_tokens=8)
    assert reply.text.strip()
    assert reply.finish in ("stop", "length")
    assert 1 <= reply.tokens_out <= 8
    assert reply.tokens_in > 10


def test_the_embedded_server_counts_a_prompt_the_same_when_it_is_cached(embedded_server):
    spec = f"smollm2@{embedded_server}"
    first, again = (ask(spec, "Count to three.", timeout=LONGEST, temperature=0.0, max_tokens=4) for _ in range(2))
    assert first.tokens_in == again.tokens_in
