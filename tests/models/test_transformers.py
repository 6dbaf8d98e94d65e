"""hf:PATH with a tiny model made on the spot: texts, seeds, likelihoods, adapters on one base, and live models."""

from __future__ import annotations

import asyncio
import shutil
import socket

import pytest
from tests import tiny
from tests.tiny import CONTEXT, make_model, make_tokenizer, name_base, save_run, torch, with_adapter

from kofn.errors import InputError
from kofn.models.base import Message, Request, RequestRejected, Sampling
from kofn.models.hugging_face import Transformers
from kofn.models.local_folders import PATIENT, find_adapters, find_model_folders, load_base

ASK = "Question: What is two plus two? Reasoning:"
SHORT = "The quick"


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    return save_run(tmp_path_factory.mktemp("run"))


@pytest.fixture
def base(run_folder):
    return Transformers(f"hf:{run_folder / 'base'}")


@pytest.fixture
def actor(run_folder):
    return Transformers(f"hf:{run_folder / 'base'}+{run_folder / 'adapter_500'}")


def request(prompt=ASK, *, n=1, **sampling):
    return Request(
        prompt=prompt, n=n, sampling=Sampling(**{"temperature": 0.8, "max_tokens": 12, "seed": 7} | sampling)
    )


def replies(model, *requests):
    async def ask():
        return [reply async for reply in model.generate(requests)]

    return sorted(asyncio.run(ask()), key=lambda reply: (reply.place, reply.index))


def texts(model, *requests):
    return [reply.text for reply in replies(model, *requests)]


def weigh(model, *pairs):
    return asyncio.run(model.loglikelihood(pairs))


# --- texts


def test_greedy_texts_are_those_of_transformers_itself(base, run_folder):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(run_folder / "base", dtype="float32")
    tokenizer = AutoTokenizer.from_pretrained(run_folder / "base")
    for prompt in (ASK, SHORT):
        ids = tokenizer(prompt, return_tensors="pt")
        out = model.generate(**ids, do_sample=False, max_new_tokens=12, pad_token_id=0)[0, ids["input_ids"].shape[1] :]
        expected = tokenizer.decode(out, skip_special_tokens=True)
        assert texts(base, request(prompt, temperature=0), request("A", temperature=0))[0] == expected


def test_a_sample_depends_on_its_own_seed_and_not_on_its_batch_mates(base):
    alone = [texts(base, request(prompt, seed=seed))[0] for prompt in (ASK, SHORT) for seed in (7, 8, 9)]
    together = texts(base, request(ASK, n=3), request(SHORT, n=3))
    assert together == alone
    assert len(set(alone)) == 6
    assert texts(base, request(ASK, n=3, seed=8))[:2] == alone[1:3]


def test_a_sample_does_not_depend_on_how_many_are_computed_together(run_folder):
    small = Transformers(f"hf:{run_folder / 'base'}", batch=2)
    large = Transformers(f"hf:{run_folder / 'base'}", batch=16)
    prompts = (request(ASK, n=5), request(SHORT, n=4), request("B", n=2))
    assert texts(small, *prompts) == texts(large, *prompts)


def test_reproducible_computes_one_row_at_a_time_and_says_so(run_folder):
    model = Transformers(f"hf:{run_folder / 'base'}", reproducible=True)
    assert (model.batch, model.samples) == (1, 1)
    assert "alone" in model.describe()["seeds"]
    first, again = (replies(model, request(ASK, n=3, logprobs=True), request(SHORT)) for _ in range(2))
    assert first == again


def test_without_a_seed_two_samples_differ(base):
    one, two = texts(base, request(seed=None, max_tokens=30, n=2))
    assert one != two


def test_random_numbers_of_torch_are_not_touched(base):
    before = torch.random.get_rng_state()
    texts(base, request())
    assert torch.equal(before, torch.random.get_rng_state())


def test_draws_follow_the_probabilities_of_the_model(base):
    model = Transformers(base.name, batch=256)
    drawn = [
        reply.logprob for reply in replies(model, request("A", n=2000, temperature=1.0, max_tokens=1, logprobs=True))
    ]
    with model._source.using() as inner:
        ids = torch.tensor([model._tokenizer.encode("A")])
        own = inner(input_ids=ids).logits[0, -1].log_softmax(-1)
    entropy = -(own.exp() * own).sum().item()
    spread = ((own.exp() * own**2).sum().item() - entropy**2) ** 0.5
    assert sum(drawn) / len(drawn) == pytest.approx(-entropy, abs=4 * spread / 2000**0.5)


def test_a_small_nucleus_is_greedy_and_a_whole_one_changes_nothing(base):
    assert texts(base, request(top_p=0.0)) == texts(base, request(temperature=0))
    assert texts(base, request(top_p=1.0)) == texts(base, request(top_p=None))


def test_a_nucleus_holds_only_the_likeliest_tokens(base):
    model = Transformers(base.name, batch=64)
    with model._source.using() as inner:
        chances = inner(input_ids=torch.tensor([model._tokenizer.encode("A")])).logits[0, -1].softmax(-1)
    ranked = chances.sort(descending=True).values
    inside = int((ranked.cumsum(-1) - ranked < 0.3).sum())
    drawn = replies(model, request("A", n=200, temperature=1.0, top_p=0.3, max_tokens=1, logprobs=True))
    assert min(reply.logprob for reply in drawn) == pytest.approx(float(ranked[inside - 1].log()), abs=1e-4)


def test_a_low_temperature_writes_likelier_texts(base):
    cold, hot = ([r.logprob for r in replies(base, request(n=8, temperature=t, logprobs=True))] for t in (0.2, 1.5))
    assert sum(cold) > sum(hot)


def test_the_log_probability_is_that_of_the_text_written(base):
    (reply,) = replies(base, request(temperature=0, logprobs=True))
    with base._source.using() as inner:
        ids = base._tokenizer.encode(ASK)
        prompts = torch.tensor([ids])
        out = inner.generate(
            prompts, attention_mask=torch.ones_like(prompts), do_sample=False, max_new_tokens=12, pad_token_id=0
        )
        logprobs = inner(input_ids=out).logits[0].log_softmax(-1)
    new = out[0, len(ids) :]
    direct = logprobs[len(ids) - 1 : -1].gather(-1, new[:, None]).sum().item()
    assert reply.logprob == pytest.approx(direct, abs=1e-4)
    assert (reply.tokens_in, reply.tokens_out, reply.finish) == (len(ids), 12, "length")


def test_nobody_who_did_not_ask_gets_log_probabilities(base):
    assert replies(base, request())[0].logprob is None


def test_a_text_is_cut_at_the_first_stop(base):
    (whole,) = replies(base, request(max_tokens=40))
    stop = whole.text[5:7]
    (cut,) = replies(base, request(max_tokens=40, stop=(stop, "never there")))
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert cut.finish == "stop"
    assert cut.tokens_out < whole.tokens_out


def test_an_end_token_ends_a_text_and_is_not_in_it(base):
    model = Transformers(base.name, batch=128)
    found = replies(model, request(max_tokens=25, temperature=1.2, n=128))
    ended = [reply for reply in found if reply.tokens_out < 25]
    assert ended
    assert {reply.finish for reply in ended} == {"stop"}
    assert not any("</s>" in reply.text for reply in ended)
    assert {reply.finish for reply in found} == {"stop", "length"}


def test_rows_of_one_batch_may_ask_for_different_things(base):
    prompts = [request(temperature=0, max_tokens=3), request(max_tokens=9), request(SHORT, top_p=0.5, max_tokens=20)]
    assert texts(base, *prompts) == [texts(base, one)[0] for one in prompts]


def test_a_prompt_too_long_is_declined_after_the_others_have_their_replies(base):
    seen = []

    async def ask():
        async for reply in base.generate([request("fox " * CONTEXT), request(SHORT)]):
            seen.append(reply.place)  # noqa: PERF401 - what came before the error counts

    with pytest.raises(RequestRejected, match=f"reads {CONTEXT}"):
        asyncio.run(ask())
    assert seen == [1]


def test_a_text_ends_where_the_model_can_read_no_further(base):
    (reply,) = replies(base, request(max_tokens=10_000, temperature=0))
    assert reply.finish in ("length", "stop")
    assert reply.tokens_in + reply.tokens_out <= CONTEXT


def test_an_empty_prompt_starts_from_the_first_token(base):
    assert replies(base, request(""))[0].tokens_in == 1


def test_a_batch_too_large_for_memory_is_halved(base, run_folder):
    model = Transformers(f"hf:{run_folder / 'base'}", batch=8)
    expected = texts(base, request(n=8))
    with model._source.using() as inner:
        pass
    sizes = []

    def crowded(module, args, kwargs):
        sizes.append(kwargs["input_ids"].shape[0])
        if sizes[-1] > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")

    hook = inner.register_forward_pre_hook(crowded, with_kwargs=True)
    try:
        assert texts(model, request(n=8)) == expected
    finally:
        hook.remove()
    assert max(sizes) == 8
    assert model._rows == 2


def test_a_row_that_never_fits_is_declined(base):
    with base._source.using() as inner:
        pass

    def full(module, args, kwargs):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")

    hook = inner.register_forward_pre_hook(full, with_kwargs=True)
    try:
        with pytest.raises(RequestRejected, match="does not fit in memory"):
            texts(base, request())
    finally:
        hook.remove()


def test_a_caller_that_goes_away_ends_the_computation(base):
    texts(base, request())

    async def leave():
        task = asyncio.create_task(anext(base.generate([request(max_tokens=170, seed=s) for s in range(8)])))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(leave())
    assert texts(base, request())


# --- messages


def test_messages_go_through_the_chat_template(tmp_path):
    save_run(tmp_path, adapters=(), chat=True)
    model = Transformers(f"hf:{tmp_path / 'base'}")
    assert model.chat is True
    written = "<s><system>be brief\n<user>Name a colour\n<assistant>"
    prompts = (Message("system", "be brief"), Message("user", "Name a colour"))
    bare = model._tokenizer.tokenizer(written, add_special_tokens=False)["input_ids"]
    assert list(model._tokenizer.encode(prompts)) == bare
    assert bare.count(0) == 1  # one <s>, not one of the template and one of the tokenizer


def test_messages_without_a_template_are_a_plain_transcript(base):
    assert base.chat is False
    prompts = request((Message("user", "Name a colour"),))
    assert texts(base, prompts) == texts(base, request("User: Name a colour\nAssistant:"))


# --- likelihoods


PAIRS = [
    (ASK, " two and two make four"),
    ("Question: What is two plus two? ", "four"),
    ("", "The quick brown fox"),
    ("A", "="),
    ("The quick brown", " fox jumps over the lazy dog 1 2 3"),
]


def direct(model, pair):
    """Whole texts one by one, with nothing padded: what any other way must agree with."""
    logprobs = model._tokenizer.pair(*pair)
    with model._source.using() as inner:
        ids = torch.tensor([logprobs.context + logprobs.continuation])
        logits = inner(input_ids=ids).logits[0].log_softmax(-1)
    at = len(logprobs.context) - 1
    rows = logits[at : at + len(logprobs.continuation)]
    reference = torch.tensor(logprobs.continuation)
    return rows.gather(-1, reference[:, None]).sum().item(), bool((rows.argmax(-1) == reference).all())


def test_likelihoods_agree_with_a_direct_computation(base, actor):
    for model in (base, actor):
        for found, pair in zip(weigh(model, *PAIRS), PAIRS, strict=True):
            logprob, greedy = direct(model, pair)
            assert found.logprob == pytest.approx(logprob, abs=1e-4)
            assert found.greedy == greedy
            assert found.tokens > 0


def test_likelihoods_do_not_depend_on_the_batch(base, run_folder):
    one = Transformers(f"hf:{run_folder / 'base'}", batch=1)
    for a, b in zip(weigh(base, *PAIRS), weigh(one, *PAIRS), strict=True):
        assert a.logprob == pytest.approx(b.logprob, abs=1e-4)


def test_what_the_model_would_write_itself_is_greedy(base):
    seen = 0
    for context in ("A", "B", "The", "fox", "Question", "User", "dog", "two plus two"):
        (reply,) = replies(base, request(context, temperature=0, max_tokens=1, logprobs=True))
        if "\ufffd" not in reply.text and len(base._tokenizer.pair(context, reply.text).continuation) == 1:
            (found,) = weigh(base, (context, reply.text))
            assert found.greedy
            assert found.logprob == pytest.approx(reply.logprob, abs=1e-4)
            seen += 1
    assert seen


def test_spaces_that_end_a_context_count_as_the_continuations(base):
    apart, together = weigh(base, ("The quick ", "brown"), ("The quick", " brown"))
    assert apart.logprob == pytest.approx(together.logprob, abs=1e-4)
    assert apart.tokens == together.tokens


def test_an_empty_continuation_is_certain(base):
    nothing, something = weigh(base, (ASK, ""), (ASK, " four"))
    assert (nothing.logprob, nothing.tokens, nothing.greedy) == (0.0, 0, True)
    assert something.logprob < 0


def test_of_a_context_too_long_the_end_is_read(base):
    (long,) = weigh(base, ("fox " * 400, " dog"))
    ids = base._tokenizer.pair("fox " * 400, " dog")
    row = (ids.context + ids.continuation)[-(CONTEXT + 1) :]
    with base._source.using() as inner:
        logprobs = inner(input_ids=torch.tensor([row[:-1]])).logits[0].log_softmax(-1)
    reference = torch.tensor(ids.continuation)
    expected = logprobs[-len(reference) :].gather(-1, reference[:, None]).sum().item()
    assert long.logprob == pytest.approx(expected, abs=1e-4)


# --- adapters


def test_actor_and_critic_share_one_base_and_differ(base, actor, run_folder):
    frozen = texts(base, request(n=3))
    trained = texts(actor, request(n=3))
    other = Transformers(f"hf:{run_folder / 'adapter_1000'}")
    assert len({*frozen, *trained, *texts(other, request(n=3))}) == 9
    assert base._source._base is actor._source._base is other._source._base
    assert texts(base, request(n=3)) == frozen
    assert texts(actor, request(n=3)) == trained


def test_the_critic_is_the_frozen_base_bit_for_bit(run_folder, actor):
    texts(actor, request())
    critic = Transformers(f"hf:{run_folder / 'base'}")
    plain = Transformers.of(make_model(make_tokenizer()), make_tokenizer())
    assert weigh(critic, *PAIRS) == weigh(plain, *PAIRS)
    assert weigh(critic, *PAIRS) != weigh(actor, *PAIRS)


def test_calls_to_actor_and_critic_at_the_same_time_do_not_mix(base, actor):
    expected = (texts(base, request(n=4)), texts(actor, request(n=4)))

    async def one(model):
        return [reply.text async for reply in model.generate([request(n=4)])]

    async def both():
        return await asyncio.gather(*(one(model) for _ in range(4) for model in (base, actor)))

    assert asyncio.run(both()) == [*expected] * 4


def test_weights_are_in_memory_once(base, actor):
    texts(base, request())
    texts(actor, request())
    storage = {p.data_ptr() for name, p in actor._source._base.model.named_parameters() if "lora" not in name}
    with base._source.using() as inner:
        assert {p.data_ptr() for name, p in inner.named_parameters() if "lora" not in name} == storage


def test_a_base_nobody_uses_is_let_go_and_so_is_an_adapter(run_folder):
    first = Transformers(f"hf:{run_folder / 'adapter_500'}", dtype="float64")
    texts(first, request())
    shared = load_base(run_folder / "base", "cpu", "float64")
    assert len(shared.model.peft_config) == 1
    asyncio.run(first.close())
    second = Transformers(f"hf:{run_folder / 'adapter_1000'}", dtype="float64")
    texts(second, request())
    assert [name.rpartition("_")[0] for name in shared.model.peft_config] == ["adapter_1000"]


def test_an_adapter_written_anew_is_loaded_anew(run_folder, tmp_path):
    folder = tmp_path / "adapter"
    shutil.copytree(run_folder / "adapter_500", folder)
    before = texts(Transformers(f"hf:{folder}"), request())
    shutil.copy(run_folder / "adapter_1000" / "adapter_model.safetensors", folder)
    assert texts(Transformers(f"hf:{folder}"), request()) != before


@pytest.mark.parametrize("named", ["absolute", "base", "../base"])
def test_an_adapter_names_its_base(run_folder, named, monkeypatch, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run_folder, copy)
    name_base(copy / "adapter_500", copy / "base" if named == "absolute" else named)
    monkeypatch.chdir(tmp_path)
    assert find_model_folders(f"hf:{copy / 'adapter_500'}").base.resolve() == (copy / "base").resolve()


def test_adapters_are_found_in_the_order_of_their_numbers(run_folder, tmp_path):
    assert [p.name for p in find_adapters(run_folder)] == ["adapter_500", "adapter_1000"]
    assert find_adapters(run_folder / "adapter_500") == [run_folder / "adapter_500"]
    with pytest.raises(InputError, match="holds no adapter"):
        find_adapters(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        find_adapters(tmp_path / "not there")


def test_a_folder_with_a_plus_in_its_name_is_a_folder(run_folder, tmp_path):
    odd = tmp_path / "a+b"
    shutil.copytree(run_folder / "base", odd)
    assert find_model_folders(f"hf:{odd}").base == odd
    assert find_model_folders(f"hf:{odd}+{run_folder / 'adapter_500'}").adapter == run_folder / "adapter_500"


# --- the user's mistakes


def refused(spec, **options):
    with pytest.raises(InputError) as caught:
        texts(Transformers(spec, **options), request())
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def test_nothing_is_downloaded(monkeypatch):
    def offline(*args, **kwargs):
        raise AssertionError("kofn asked the network")

    monkeypatch.setattr(socket, "getaddrinfo", offline)
    assert "hf download Qwen/Qwen2-0.5B" in refused("hf:Qwen/Qwen2-0.5B")


def test_an_adapter_whose_base_is_not_here_is_one_line(run_folder, tmp_path):
    folder = tmp_path / "adapter_1"
    shutil.copytree(run_folder / "adapter_500", folder)
    name_base(folder, "/nowhere/llama")
    assert f"hf:BASE+{folder}" in refused(f"hf:{folder}")


def test_folders_that_are_no_models_are_one_line(tmp_path, run_folder):
    assert "names no model" in refused("hf:")
    assert "no config.json" in refused(f"hf:{tmp_path}")
    assert "no such folder" in refused(f"hf:{tmp_path / 'not there'}")
    (tmp_path / "config.json").write_text("{}")
    assert "tokenizer cannot be loaded" in refused(f"hf:{tmp_path}")
    assert "device 'cuda:7' is not there" in refused(f"hf:{run_folder / 'base'}", device="cuda:7")
    assert "dtype 'tiny'" in refused(f"hf:{run_folder / 'base'}", dtype="tiny")


def test_code_of_a_model_folder_is_not_run(run_folder, tmp_path):
    folder = tmp_path / "custom"
    shutil.copytree(run_folder / "base", folder)
    (folder / "mine.py").write_text("raise AssertionError('this ran')")
    config = (
        (folder / "config.json")
        .read_text()
        .replace("{", '{"auto_map": {"AutoConfig": "mine.C", "AutoModelForCausalLM": "mine.M"},', 1)
    )
    (folder / "config.json").write_text(config.replace('"model_type": "llama"', '"model_type": "mine"'))
    assert "code of its own" in refused(f"hf:{folder}")


def test_an_adapter_of_another_model_is_one_line_and_leaves_the_base_whole(run_folder, tmp_path):
    other = tmp_path / "other"
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    model.model.layers = model.model.layers[:1]
    model.config.num_hidden_layers = 1
    model.save_pretrained(other)
    tokenizer.save_pretrained(other)
    small = Transformers(f"hf:{other}")
    before = texts(small, request())
    assert "does not fit the base" in refused(f"hf:{other}+{wide_adapter(tmp_path)}")
    assert texts(small, request()) == before


def wide_adapter(folder):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64, hidden_size=48, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4
    )
    wrapped = with_adapter(LlamaForCausalLM(config))
    wrapped.peft_config["default"].base_model_name_or_path = str(folder)
    wrapped.save_pretrained(folder / "wide", save_embedding_layers=False)
    return folder / "wide"


def test_threads_sleep_while_they_wait():
    import os

    assert all(name in os.environ for name in PATIENT)


# --- live models


def state_of(model, tokenizer):
    return {
        "modes": [module.training for module in model.modules()],
        "trainable": [parameter.requires_grad for parameter in model.parameters()],
        "values": [parameter.detach().clone() for parameter in model.parameters()],
        "adapter": getattr(model, "active_adapter", None),
        "use_cache": model.config.use_cache,
        "side": (tokenizer.padding_side, tokenizer.pad_token),
        "checkpointing": model.is_gradient_checkpointing,
        "random": torch.random.get_rng_state(),
    }


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return all(same(a[key], b[key]) for key in a)
    return len(a) == len(b) and all(map(same, a, b)) if isinstance(a, list) else a == b


def test_a_live_model_is_left_as_it_was_found():
    tokenizer = make_tokenizer()
    model = with_adapter(make_model(tokenizer))
    model.gradient_checkpointing_enable()
    model.enable_input_require_grads()
    model.config.use_cache = False
    model.train()
    model.base_model.model.model.norm.eval()  # somebody froze a part of it
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_A" in name)
    model.add_adapter("second", model.peft_config["default"])
    before = state_of(model, tokenizer)
    actor = Transformers.of(model, tokenizer, name="actor")
    critic = Transformers.of(model, tokenizer, name="critic", disable_adapter=True)
    second = Transformers.of(model, tokenizer, adapter="second")
    written = [texts(one, request(n=2)) for one in (actor, critic, second)]
    assert weigh(actor, *PAIRS) != weigh(critic, *PAIRS)
    assert same(before, state_of(model, tokenizer))
    assert written[0] != written[1] == written[2]  # the second adapter is new: it changes nothing yet
    loss = model(input_ids=torch.tensor([[1, 2, 3]]), labels=torch.tensor([[1, 2, 3]])).loss
    loss.backward()
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_a_live_model_is_left_as_it_was_found_when_a_call_fails():
    tokenizer = make_tokenizer()
    model = with_adapter(make_model(tokenizer)).train()
    before = state_of(model, tokenizer)
    with pytest.raises(RequestRejected):
        texts(Transformers.of(model, tokenizer, disable_adapter=True), request("fox " * CONTEXT))
    assert same(before, state_of(model, tokenizer))


def test_a_live_model_is_described_without_files_and_refuses_what_it_has_not():
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    logprobs = Transformers.of(model, tokenizer, device="cpu", name="mine").describe()
    assert (logprobs["name"], logprobs["live"], logprobs["device"]) == ("mine", "LlamaForCausalLM", "cpu")
    with pytest.raises(InputError, match="not a PeftModel"):
        Transformers.of(model, tokenizer, disable_adapter=True)
    with pytest.raises(InputError, match="no adapter 'x'"):
        Transformers.of(model, tokenizer, adapter="x")
    with pytest.raises(InputError, match="the model is on cpu"):
        Transformers.of(model, tokenizer, device="cuda")


def test_the_tiny_model_is_what_the_tests_need():
    assert tiny.make_tokenizer(chat=True).chat_template
    assert make_tokenizer()("a")["input_ids"][0] == 0
    assert make_tokenizer(bos=False)("a")["input_ids"][0] != 0
