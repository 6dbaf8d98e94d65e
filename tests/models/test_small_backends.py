"""Opening a model by name, and the backends that compute nothing: stored outputs, functions, programs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import threading
from pathlib import Path

import polars as pl
import pytest
from tests.waiting import LONGEST, wait_until

from kofn.errors import InputError, UnknownName
from kofn.models import open_model
from kofn.models.base import Message, Reply, Request, RequestRejected, RetryableError, Sampling
from kofn.registry import known


def replies(model, *requests):
    async def gather():
        received = [reply async for reply in model.generate(requests)]
        await model.close()
        return received

    return asyncio.run(gather())


def texts(model, *requests):
    return [reply.text for reply in replies(model, *requests)]


# names


def test_an_unknown_prefix_is_refused_with_the_nearest():
    with pytest.raises(UnknownName, match=r"unknown model 'opanai': did you mean openai\?"):
        open_model("opanai:gpt")
    with pytest.raises(UnknownName, match=r"unknown model 'gpt-x': did you mean openai:gpt-x\?"):
        open_model("gpt-x")
    with pytest.raises(UnknownName, match=r"unknown model 'mine-1': expected smollm2, gguf:PATH, openai:MODEL"):
        open_model("mine-1")


def test_a_prefix_that_needs_more_says_so_and_smollm2_needs_none():
    for spec in ("gguf", "replay:", "command"):
        with pytest.raises(InputError, match=r"expected .*:\.\.\."):
            open_model(spec)
    with pytest.raises(InputError, match="smollm2 stands alone"):
        open_model("smollm2:big")


def test_options_reach_the_backend_that_has_them_and_a_wrong_one_is_named():
    assert open_model("command:cat", options={"timeout": 3, "device": "cpu"}).timeout == 3
    assert open_model("smollm2", reproducible=True, options={"batch": 4}).reproducible
    with pytest.raises(InputError, match="model command:cat: no option 'tiemout': it takes timeout"):
        open_model("command:cat", options={"tiemout": 3})


def test_a_model_is_opened_as_itself_and_what_is_none_is_refused():
    model = open_model("command:cat")
    assert open_model(model) is model
    with pytest.raises(InputError, match="expected a name or a callable, not int"):
        open_model(7)


SHOUTING = """
from kofn.models.base import Model, Reply

class Shouting(Model):
    def __init__(self, spec, *, mark="!"):
        self.name, self.mark = f"shout:{spec}", mark

    async def generate(self, requests):
        for place, request in enumerate(requests):
            yield Reply(text=request.prompt.upper() + self.mark, place=place)
"""


def test_a_package_brings_its_own_prefix_by_entry_point(monkeypatch, tmp_path):
    about = tmp_path / "shouting-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[kofn.models]\nshout = shouting_models:Shouting\n")
    (tmp_path / "shouting_models.py").write_text(SHOUTING)
    monkeypatch.syspath_prepend(tmp_path)
    known.cache_clear()
    try:
        assert texts(open_model("shout:x", options={"mark": "?"}), Request(prompt="hi")) == ["HI?"]
    finally:
        known.cache_clear()


# replay


WIDE = [
    {"id": "a", "reference": "1", "outputs": ["one", {"text": "two", "tokens": 7, "reasoning": "because"}]},
    {"group_id": 5, "outputs": ["three", {"error": "status 500"}]},
]
LONG = [
    {"id": "a", "output": "one"},
    {"id": "5", "output": "three", "repeat": 0},
    {"id": "a", "output": "two", "completion_tokens": 7},
]


def stored(tmp_path, rows):
    path = tmp_path / "outputs.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    return open_model(f"replay:{path}")


@pytest.mark.parametrize("rows", [WIDE, LONG], ids=["wide", "long"])
def test_stored_outputs_are_found_by_case_and_repeat(tmp_path, rows):
    model = stored(tmp_path, rows)
    first, second = replies(model, Request(prompt="?", case_id="a", n=2))
    assert (first.text, first.index, second.text, second.index) == ("one", 0, "two", 1)
    assert (first.tokens_out, second.tokens_out) == (None, 7)
    assert texts(model, Request(prompt="?", case_id="a", repeat=1), Request(prompt="?", case_id="5")) == [
        "two",
        "three",
    ]


def test_an_output_that_is_not_stored_is_declined_by_its_name(tmp_path):
    model = stored(tmp_path, WIDE)
    with pytest.raises(RequestRejected, match="no output for case 'a', repeat 2"):
        replies(model, Request(prompt="?", case_id="a", repeat=1, n=2))
    with pytest.raises(RequestRejected, match="no output for case 'z', repeat 0"):
        replies(model, Request(prompt="?", case_id="z"))
    with pytest.raises(RequestRejected, match="status 500"):
        replies(model, Request(prompt="?", case_id="5", repeat=1))
    with pytest.raises(RequestRejected, match="names none"):
        replies(model, Request(prompt="?"))


def test_a_run_directory_is_replayed_from_its_candidates(tmp_path):
    frame = pl.DataFrame({"case_id": ["q", "q"], "index": [1, 0], "text": ["second", "first"]})
    frame.write_parquet(tmp_path / "candidates.parquet")
    for spec in (tmp_path, tmp_path / "candidates.parquet"):
        model = open_model(f"replay:{spec}")
        assert texts(model, Request(prompt="?", case_id="q", n=2)) == ["first", "second"]
    assert len(model.describe()["sha256"]) == 64


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "line 1 is no JSON"),
        ('{"output": "x"}', "line 1: expected an object with an id"),
        ('{"id": "a"}', "line 1: no output"),
        ('{"id": "a", "output": "x", "repeat": 0}\n{"id": "a", "output": "y", "repeat": 0}', "'a' has repeat 0 twice"),
    ],
)
def test_a_file_that_cannot_be_replayed_says_where(tmp_path, line, says):
    (tmp_path / "bad.jsonl").write_text(line)
    with pytest.raises(InputError, match=says):
        replies(open_model(f"replay:{tmp_path / 'bad.jsonl'}"), Request(prompt="?", case_id="a"))
    with pytest.raises(InputError, match="there is no such file"):
        open_model(f"replay:{tmp_path / 'none.jsonl'}")


# functions


def test_a_function_is_given_the_text_or_what_the_user_said_last():
    model = open_model(lambda prompt: prompt[::-1])
    chat = (Message("system", "s"), Message("user", "abc"), Message("assistant", "x"))
    assert texts(model, Request(prompt="abc"), Request(prompt=chat)) == ["cba", "cba"]


def test_a_function_is_given_what_its_parameters_name():
    def function(prompt, repeat, *, seed, case_id):
        return f"{prompt} {repeat} {seed} {case_id}"

    request = Request(prompt="p", sampling=Sampling(seed=10), n=2, case_id="q", repeat=3)
    assert texts(open_model(function), request) == ["p 3 10 q", "p 4 11 q"]


def test_a_function_of_the_request_may_give_all_outputs_at_once():
    calls = []

    def function(request):
        calls.append(request.n)
        return [f"{request.prompt}{i}" for i in range(request.n)]

    model = open_model(function)
    assert model.samples > 1
    assert texts(model, Request(prompt="p", n=3)) == ["p0", "p1", "p2"]
    assert calls == [3]
    with pytest.raises(RequestRejected, match="returned 2 outputs: expected 3"):
        replies(open_model(lambda request: [request.prompt] * 2), Request(prompt="p", n=3))


def test_a_function_may_be_async_and_may_return_a_reply():
    async def function(prompt):
        await asyncio.sleep(0)
        return Reply(text=prompt, tokens_out=3, index=99)

    first, second = replies(open_model(function), Request(prompt="p", n=2))
    assert (first.tokens_out, first.index, second.index) == (3, 0, 1)


class Remembering:
    async def __call__(self, prompt):
        return prompt


def test_an_object_with_an_async_call_is_a_model_too():
    model = open_model(Remembering())
    assert texts(model, Request(prompt="p")) == ["p"]
    assert model.concurrency > 1


def test_an_exception_of_a_function_declines_that_output_and_says_what_it_was():
    def fails(prompt):
        raise ZeroDivisionError("by hand")

    with pytest.raises(RequestRejected, match="ZeroDivisionError: by hand"):
        replies(open_model(fails), Request(prompt="p"))
    with pytest.raises(RequestRejected, match="returned int: expected a text"):
        replies(open_model(len), Request(prompt="p"))


def test_a_function_that_says_again_or_stop_is_believed():
    def again(prompt):
        raise RetryableError("busy", after=2.0)

    def wrong(prompt):
        raise InputError("no key")

    for function, kind in ((again, RetryableError), (wrong, InputError)):
        with pytest.raises(kind):
            replies(open_model(function), Request(prompt="p"))


def test_a_slow_function_does_not_stop_the_event_loop():
    ticked = threading.Event()

    async def watched():
        model = open_model(lambda prompt: ticked.wait(LONGEST) and prompt)
        call = asyncio.ensure_future(anext(model.generate([Request(prompt="p")])))
        for _ in range(4):
            await asyncio.sleep(0.01)
        assert not call.done()
        ticked.set()  # which nothing would, if the function held the loop
        return (await call).text

    assert asyncio.run(watched()) == "p"


def test_a_function_is_named_by_module(monkeypatch, tmp_path):
    (tmp_path / "my_models.py").write_text("def echo(prompt):\n    return 'mine: ' + prompt\nnumber = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    model = open_model("fake:my_models:echo")
    assert model.name == "fake:my_models:echo"
    assert texts(model, Request(prompt="p")) == ["mine: p"]
    for spec, says in (
        ("fake:my_models", "expected fake:module:function"),
        ("fake:my_models:ecco", "has no 'ecco'"),
        ("fake:my_modles:echo", "cannot import my_modles"),
        ("fake:my_models:number", "expected a name or a callable, not int"),
    ):
        with pytest.raises(InputError, match=says):
            open_model(spec)


# programs


def python(code):
    return f"command:{sys.executable} -c '{code}'"


def test_a_program_reads_the_prompt_and_prints_the_output():
    assert texts(open_model("command:cat"), Request(prompt="one\ntwo")) == ["one\ntwo"]
    chat = (Message("system", "s"), Message("user", "u"))
    assert texts(open_model("command:cat"), Request(prompt=chat)) == ["s\n\nu"]
    assert texts(open_model(python('print("x")')), Request(prompt="p")) == ["x"]


def test_a_program_is_told_seed_repeat_and_case_and_no_shell_sees_its_arguments(monkeypatch):
    monkeypatch.setenv("KOFN_SEED", "stale")
    code = 'import os; print(*(os.environ.get("KOFN_" + n) for n in ("SEED", "REPEAT", "CASE")))'
    request = Request(prompt="", sampling=Sampling(seed=7), case_id="q;1", repeat=2, n=2)
    assert texts(open_model(python(code)), request) == ["7 2 q;1", "8 3 q;1"]
    assert texts(open_model(python(code)), Request(prompt="")) == ["None 0 None"]
    assert texts(open_model("command:echo $HOME `id`; ls"), Request(prompt="")) == ["$HOME `id`; ls"]


def test_a_program_that_fails_declines_with_the_end_of_what_it_said():
    code = 'import sys; print("x" * 900, "the end", file=sys.stderr); sys.exit(3)'
    with pytest.raises(RequestRejected, match=r"^exit code 3: \.\.\.x+ the end$") as caught:
        replies(open_model(python(code)), Request(prompt="p" * 100_000))  # which it never reads
    assert len(str(caught.value)) < 400


def test_bytes_that_are_no_text_are_replaced():
    code = 'import sys; sys.stdout.buffer.write(b"a\\xff\\nb\\n\\n")'
    assert texts(open_model(python(code)), Request(prompt="\ud83d")) == ["a\ufffd\nb\n"]


def test_a_program_that_is_not_there_is_named():
    with pytest.raises(InputError, match="there is no program 'no-such-program'"):
        open_model("command:no-such-program -x")
    with pytest.raises(InputError, match="No closing quotation"):
        open_model("command:echo 'x")


def test_a_program_and_what_it_started_end_with_a_call_that_is_cancelled_or_too_late(tmp_path):
    pids = tmp_path / "pids"
    code = (
        "import os, subprocess, time; child = subprocess.Popen(['sleep', '600']);"
        f"open('{pids}', 'w').write(f'{{os.getpid()}} {{child.pid}}'); time.sleep(600)"
    )
    spec = f'command:{sys.executable} -c "{code}"'

    async def cancelled():
        call = asyncio.ensure_future(anext(open_model(spec).generate([Request(prompt="p")])))
        while not (pids.exists() and pids.read_text().count(" ")):
            await asyncio.sleep(0.02)
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call

    asyncio.run(cancelled())
    assert gone(pids)
    pids.unlink()
    with pytest.raises(RetryableError, match="no output within 1 s"):
        replies(open_model(spec, options={"timeout": 1}), Request(prompt="p"))
    assert not pids.exists() or gone(pids)


def gone(pids: Path) -> bool:
    """Whether no process of these is left; one that nobody has waited for yet is a zombie, and gone."""
    return wait_until(lambda: not any(map(_alive, pids.read_text().split())), "processes end")


def _alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
