"""The OpenAI format, on a real server that can be told to fail, and on the embedded model's own."""

from __future__ import annotations

import asyncio

import pytest
from tests.loopback import answer_of, running, serving
from tests.waiting import LONGEST

from kofn.errors import InputError, KofnError, WorldError
from kofn.models.base import Message, Request, RequestRejected, RetryableError, Sampling
from kofn.models.openai import OpenAI

KEY = "sk-test-0123456789abcdef"
CHAT = (Message("system", "Be brief."), Message("user", "2+2?"))
SENT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "KOFN_API_KEY"):
        monkeypatch.delenv(name, raising=False)


async def collected(model, *requests):
    try:
        return [reply async for reply in model.generate(requests)]
    finally:
        await model.close()


def ask(spec, prompt=CHAT, n=1, timeout=LONGEST, options=None, **sampling):
    request = Request(prompt=prompt, sampling=Sampling(**sampling), n=n)
    return asyncio.run(collected(OpenAI(spec, timeout=timeout, options=options), request))


def failed(server, model, error, **more):
    with pytest.raises(error) as caught:
        ask(f"{model}@{server.url}", **more)
    assert caught.value.__cause__ is None
    return caught.value


# what is sent, and what comes back


def test_messages_go_to_chat_completions_with_every_parameter():
    with serving() as server:
        sampling = {"temperature": 0.7, "top_p": 0.9, "max_tokens": 50, "stop": ("\n",), "seed": 11}
        (reply,) = ask(f"m@{server.url}", **sampling)
        (received,) = server.requests
    assert (received["path"], received["prompt"], received["seed"], received["n"]) == (
        "/v1/chat/completions",
        SENT,
        11,
        1,
    )
    assert received["body"] == {"temperature": 0.7, "top_p": 0.9, "max_tokens": 50, "stop": ["\n"]}
    assert reply.text == answer_of(SENT, 11)
    assert (reply.place, reply.index, reply.finish, reply.logprob) == (0, 0, "stop", None)
    assert (reply.tokens_in, reply.tokens_out) == (3, 4)


def test_a_text_goes_to_completions_as_it_is():
    with serving() as server:
        (reply,) = ask(f"m@{server.url}", "Q: 2+2\nA:", max_tokens=2)
        (received,) = server.requests
    assert (received["path"], received["prompt"]) == ("/v1/completions", "Q: 2+2\nA:")
    assert (reply.text, reply.finish, reply.tokens_out) == ("The answer", "length", 2)


def test_what_is_not_said_is_not_sent():
    with serving() as server:
        ask(f"m@{server.url}")
        assert server.requests[0]["body"] == {"max_tokens": 256}
        assert "authorization" not in server.headers[0]


@pytest.mark.parametrize("prompt", [CHAT, "2+2="])
def test_samples_of_one_request_are_those_of_its_seeds_alone(prompt):
    with serving() as server:
        together = ask(f"m@{server.url}", prompt, n=5, seed=3)
        alone = [ask(f"m@{server.url}", prompt, seed=3 + j)[0].text for j in range(5)]
    assert [reply.index for reply in together] == [0, 1, 2, 3, 4]
    assert [reply.text for reply in together] == alone


@pytest.mark.parametrize("prompt", [CHAT, "2+2="])
def test_log_probabilities_are_summed_in_both_formats(prompt):
    with serving() as server:
        replies = ask(f"m@{server.url}", prompt, n=2, logprobs=True)
    assert [(reply.logprob, reply.tokens_out) for reply in replies] == [(-1.0, 4), (-1.0, 4)]


def test_several_requests_keep_their_places():
    with serving() as server:
        model = OpenAI(f"m@{server.url}")
        replies = asyncio.run(collected(model, Request(prompt="a"), Request(prompt="b", n=2)))
    assert [(r.place, r.index, r.text) for r in replies] == [
        (0, 0, answer_of("a", 0)),
        (1, 0, answer_of("b", 0)),
        (1, 1, answer_of("b", 1)),
    ]


def test_tokens_of_several_outputs_are_shared_or_unknown_where_the_server_counts_one():
    with serving() as server:
        assert [r.tokens_out for r in ask(f"m@{server.url}", n=3)] == [4, 4, 4]
        assert [r.tokens_out for r in ask(f"one-usage@{server.url}", n=3)] == [None, None, None]
        assert [r.tokens_out for r in ask(f"one-usage@{server.url}", n=3, logprobs=True)] == [4, 4, 4]
        assert [r.tokens_out for r in ask(f"one-usage@{server.url}")] == [4]


@pytest.mark.parametrize("model", ["wrong-usage", "absurd-usage", "no-usage"])
def test_a_wrong_count_is_no_count_and_the_text_is_kept(model):
    with serving() as server:
        (reply,) = ask(f"{model}@{server.url}", seed=1)
    assert reply.text == answer_of(SENT, 1)
    assert (reply.tokens_in, reply.tokens_out) == (None, None)


def test_a_server_that_ignores_n_gives_what_there_is():
    with serving() as server:
        replies = ask(f"one-choice@{server.url}", n=4)
    assert [(reply.index, reply.tokens_out) for reply in replies] == [(0, 4)]


def test_reasoning_is_kept_apart_and_no_content_is_an_empty_text():
    with serving() as server:
        (thought,) = ask(f"reasons@{server.url}")
        (nothing,) = ask(f"null@{server.url}")
        (refused,) = ask(f"refusal@{server.url}")
    assert thought.reasoning == "Because of 0."
    assert (nothing.text, nothing.reasoning) == ("", None)
    assert (refused.text, refused.finish) == ("I cannot help with that.", "refusal")


def test_options_are_sent_win_and_take_away():
    with serving() as server:
        options = {"top_k": 5, "max_completion_tokens": 3, "temperature": None}
        ask(f"m@{server.url}", options=options, temperature=1.0)
        assert server.requests[0]["body"] == {"top_k": 5, "max_completion_tokens": 3}
        with pytest.raises(InputError, match="option 'stream' cannot be set"):
            OpenAI(f"m@{server.url}", options={"stream": True})


def test_a_slow_reply_is_waited_for():
    with serving() as server:
        (reply,) = ask(f"slow@{server.url}", seed=1)
    assert reply.text == answer_of(SENT, 1)


# failures


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("408", "status 408"),
        ("409", "status 409"),
        ("429", "status 429"),
        ("500", "status 500"),
        ("502", "status 502"),
        ("503", "status 503"),
        ("504", "status 504"),
        ("529", "status 529"),
        ("drop", "disconnected"),
        ("cut", "not completed"),
        ("malformed", "no JSON"),
        ("html", "Just a moment"),
        ("no-choices", "without an answer"),
        ("error-200", "provider is down"),
    ],
)
def test_what_may_pass_is_tried_again(model, said):
    with serving() as server:
        assert said in str(failed(server, model, RetryableError))


def test_a_reply_that_never_comes_is_given_up_after_the_timeout():
    with serving() as server:
        assert "within 0.2 s" in str(failed(server, "hang", RetryableError, timeout=0.2))


def test_a_server_that_is_not_there_may_come_back():
    with serving() as server:
        pass
    assert "cannot connect" in str(failed(server, "m", RetryableError))


@pytest.mark.parametrize(
    ("model", "least", "most"), [("429", 1, 1), ("503:2", 2, 2), ("429-ms", 0.03, 0.03), ("429-date", 0.5, 2)]
)
def test_the_wait_that_a_server_asks_for_is_passed_on(model, least, most):
    with serving() as server:
        after = failed(server, model, RetryableError).after
    assert least <= after <= most


@pytest.mark.parametrize(("model", "said"), [("400", "maximum context length"), ("413", "413"), ("422", "422")])
def test_a_request_that_cannot_succeed_is_declined_with_what_the_server_says(model, said):
    with serving() as server:
        assert said in str(failed(server, model, RequestRejected))


def test_what_a_filter_took_is_declined():
    with serving() as server:
        assert "content filter" in str(failed(server, "filter", RequestRejected))


def test_an_output_that_a_filter_took_is_missing_and_the_others_are_not():
    with serving() as server:
        assert [reply.index for reply in ask(f"filter-one@{server.url}", n=3)] == [0, 2]


def test_half_a_character_at_the_end_of_an_output_is_no_failure():
    with serving() as server:
        (reply,) = ask(f"half@{server.url}", seed=1)
    assert reply.text == answer_of(SENT, 1)[:-1] + " \ufffd"


def test_a_prompt_that_no_bytes_can_say_is_declined():
    with serving() as server:
        assert "no JSON" in str(failed(server, "m", RequestRejected, prompt="half \ud83d"))
        assert server.requests == []


@pytest.mark.parametrize(
    ("model", "kind", "said"),
    [
        ("401", InputError, "check the environment variable KOFN_API_KEY"),
        ("403", InputError, "KOFN_API_KEY"),
        ("404", InputError, "`404` does not exist"),
        ("307", InputError, "check the name of the model and the base URL"),
        ("402", WorldError, "402"),
        ("quota", WorldError, "exceeded your current quota"),
        ("unsupported", InputError, "refuses a parameter"),
    ],
)
def test_what_no_request_can_pass_stops_the_run(model, kind, said):
    with serving() as server:
        problem = failed(server, model, kind, temperature=0.5)
        assert len(server.requests) == 1  # a redirect, too, is not followed
    assert said in str(problem)
    assert len(str(problem).splitlines()) == 1


def test_a_failure_leaves_the_model_usable():
    async def go(model):
        seen = []
        for _ in range(3):
            try:
                seen += [reply.text async for reply in model.generate([Request(prompt="x")])]
            except RetryableError as problem:
                seen.append(str(problem)[:10])
        await model.close()
        await model.close()
        return seen

    with serving(faults={"*": ["500", "cut"]}) as server:
        seen = asyncio.run(go(OpenAI(f"m@{server.url}")))
    assert seen == ["status 500", "ClientPayl", answer_of("x", 0)]


def test_a_model_may_be_asked_from_several_event_loops():
    with serving() as server:
        model = OpenAI(f"m@{server.url}")

        async def go():
            return [reply.text async for reply in model.generate([Request(prompt="x")])]

        with asyncio.Runner() as first, asyncio.Runner() as second:
            assert first.run(go()) == second.run(go()) == first.run(go())
            first.run(model.close())
            second.run(model.close())


def test_a_proxy_of_the_environment_is_used_but_not_for_this_machine(monkeypatch):
    with serving() as proxy, serving() as server:
        monkeypatch.setenv("http_proxy", f"http://me:hunter22@127.0.0.1:{proxy.port}")
        ask("m@http://model.invalid/v1")
        ask(f"m@{server.url}")
        assert [len(proxy.requests), len(server.requests)] == [1, 1]
        assert proxy.headers[0]["host"] == "model.invalid"
    monkeypatch.setenv("no_proxy", "model.invalid")
    with pytest.raises(RetryableError) as caught:
        ask("m@http://model.invalid/v1")
    assert "hunter22" not in repr(caught.value)


# names, base URLs and keys


def test_the_name_of_a_model_may_hold_any_sign():
    with serving() as server:
        model = OpenAI(f"org/name@v1:free@{server.url}/")
        asyncio.run(collected(model, Request(prompt="x")))
        assert server.requests[0]["model"] == "org/name@v1:free"
    assert model.name == f"openai:org/name@v1:free@{server.url}"
    assert model.describe() == {"name": model.name, "base_url": server.url, "options": {}}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("gpt-x", "set the environment variable OPENAI_API_KEY"),
        ("gpt-x@https://api.openai.com/v1", "OPENAI_API_KEY"),
        ("@http://127.0.0.1/v1", "names no model"),
        ("m@localhost:8080", "write the base URL in full: ...@http://localhost:8080"),
        ("m@http://", "no URL"),
        ("m@http://host:port/v1", "no URL"),
    ],
)
def test_a_model_that_cannot_be_asked_is_refused_before_any_call(spec, said):
    with pytest.raises(InputError) as caught:
        OpenAI(spec)
    assert said in str(caught.value)


def test_the_vendors_key_goes_to_the_vendor_and_where_its_variable_says(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving() as server:
        ask(f"m@{server.url}")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/")
        ask("m")
        ask(f"m@{server.url}")
        ask(f"m@{server.root}/v1/../v1")
        sent = [headers.get("authorization") for headers in server.headers]
    assert sent == [None, f"Bearer {KEY}", f"Bearer {KEY}", None]
    assert OpenAI("m").name == f"openai:m@{server.url}"


def test_other_servers_get_the_key_that_is_meant_for_them(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-this-one")
    monkeypatch.setenv("KOFN_API_KEY", f" {KEY}\n")
    with serving() as server:
        ask(f"m@{server.url}")
        assert server.headers[0]["authorization"] == f"Bearer {KEY}"


def test_a_key_with_a_line_break_is_refused_without_being_shown(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\nX-Evil: 1")
    with pytest.raises(InputError, match="OPENAI_API_KEY holds") as caught:
        OpenAI("gpt-x")
    assert KEY not in str(caught.value)


def everything(model, problem=None):
    return " ".join(map(str, (repr(model), model.name, model.describe(), problem, repr(problem), vars(model))))


@pytest.mark.parametrize("fault", ["401", "400:echo", "500:echo", "drop"])
def test_no_error_repeats_a_key(fault, monkeypatch):
    monkeypatch.setenv("KOFN_API_KEY", KEY)
    with serving(faults={"*": fault}) as server:
        model = OpenAI(f"m@{server.url}")
        with pytest.raises((KofnError, RetryableError, RequestRejected)) as caught:
            asyncio.run(collected(model, Request(prompt="x")))
        assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert KEY not in everything(model, caught.value)
    assert fault == "drop" or "***" in str(caught.value)


def test_a_login_in_the_base_url_is_sent_and_never_shown():
    with serving(faults={"*": ["401", "ok"]}) as server:
        model = OpenAI(f"m@http://anna:hunter22@127.0.0.1:{server.port}/v1?token=secretquery")
        with pytest.raises(InputError) as caught:
            asyncio.run(collected(model, Request(prompt="x")))
        assert len(asyncio.run(collected(model, Request(prompt="x")))) == 1
        assert server.headers[0]["authorization"] == "Basic YW5uYTpodW50ZXIyMg=="
    assert model.name == f"openai:m@http://***@127.0.0.1:{server.port}/v1?***"
    text = everything(model, caught.value)
    assert not [word for word in ("hunter22", "YW5uYTpodW50ZXIyMg", "secretquery") if word in text]


def test_the_vendors_own_models_get_the_vendors_names_and_shares(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    model = OpenAI("gpt-x")
    assert (model.name, model.base_url) == ("openai:gpt-x", "https://api.openai.com/v1")
    assert (model.concurrency, model.samples, model.chat, model.batch) == (16, 128, True, 1)
    body = model._body(Request(prompt=CHAT, sampling=Sampling(max_tokens=9)))
    assert (body["max_completion_tokens"], "max_tokens" in body) == (9, False)
    assert model._body(Request(prompt="x", sampling=Sampling(max_tokens=9)))["max_tokens"] == 9
    choices = [{"index": i, "message": {"content": "x"}, "finish_reason": "stop"} for i in range(3)]
    replies = model._replies({"choices": choices, "usage": {"completion_tokens": 11}}, 0, 3)
    assert [reply.tokens_out for reply in replies] == [4, 4, 3]
    with pytest.raises(InputError, match="at most 4 stop sequences"):
        model._body(Request(prompt=CHAT, sampling=Sampling(stop=tuple("abcde"))))


def test_a_separate_process_writes_down_what_it_was_asked(tmp_path):
    with running(tmp_path / "log", faults={"*": ["500"]}) as server:
        with pytest.raises(RetryableError):
            ask(f"m@{server.url}", "x", seed=5)
        ask(f"m@{server.url}", "x", seed=5)
        requests = [(line["prompt"], line["seed"], line["answered"]) for line in server.requests]
    assert requests == [("x", 5, False), ("x", 5, True)]


# a real model


def test_the_embedded_server_chats_with_seeds_samples_and_log_probabilities(embedded_server):
    spec = f"smollm2@{embedded_server}/v1"
    messages = (Message("user", "Name a colour."),)
    options = {"cache_prompt": False}
    sampling = {"max_tokens": 8, "temperature": 1.0, "seed": 5, "logprobs": True}
    first = ask(spec, messages, n=3, timeout=LONGEST, options=options, **sampling)
    again = ask(spec, messages, n=3, timeout=LONGEST, options=options, **sampling)
    assert [r.text for r in first] == [r.text for r in again]
    assert len({r.text for r in first}) > 1
    assert [r.index for r in first] == [0, 1, 2]
    for reply in first:
        assert reply.text
        assert reply.logprob < 0
        assert 1 <= reply.tokens_out <= 8
        assert reply.tokens_in > 5
        assert reply.finish in ("stop", "length")


def test_the_embedded_server_continues_a_text_and_stops_where_told(embedded_server):
    spec = f"smollm2@{embedded_server}/v1"
    (reply,) = ask(spec, "1, 2, 3, 4,", timeout=LONGEST, temperature=0.0, max_tokens=12, stop=("6",), logprobs=True)
    assert reply.text.strip().startswith("5")
    assert "6" not in reply.text
    assert (reply.finish, reply.tokens_in > 5) == ("stop", True)
    assert -20 < reply.logprob < 0


def test_the_embedded_server_declines_a_prompt_that_is_too_long(embedded_server):
    with pytest.raises(RequestRejected, match="context size"):
        ask(f"smollm2@{embedded_server}/v1", "word " * 6000, timeout=LONGEST)


def test_the_embedded_server_has_no_such_path(embedded_server):
    with pytest.raises(InputError, match="base URL"):
        ask(f"smollm2@{embedded_server}/v3", timeout=LONGEST)
