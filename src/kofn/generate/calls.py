"""The queue of calls to one model: batches, concurrency, rate limits, retries; replies are stored before they count."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field, fields, replace
from random import Random
from typing import TYPE_CHECKING, Any, cast

from kofn.core.escape import one_line
from kofn.errors import WorldError
from kofn.generate.limits import Budget, Limits, Pace, backoff
from kofn.generate.pricing import count_tokens, prompt_tokens, usage_of
from kofn.generate.store import ReplyRow
from kofn.models.base import RequestRejected, RetryableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from kofn.generate.store import Cache, Store
    from kofn.models.base import Likelihood, Model, Reply, Request

    # (model, tokens of the prompt, tokens of all outputs) -> dollars of one request, None where the price is not known
    PriceFunction = Callable[[str, int, int], float | None]


SHORT = 0.1  # seconds: below that the usual wait is added, or all retries would be over in a moment
WAITING = 0.005  # seconds between looks at a budget that the calls under way may use up
REFUSALS = 3  # attempts to reach a server that has not answered once
LINGER = 0.02  # seconds that a model which takes batches waits for a fuller one


@dataclass(slots=True)
class CallTally:
    """What a run has done so far.

    `calls` are those to models, failed ones too; `replies` what they gave and is stored, `errors` the rows without an
    output among them; `reused` came from the store or the cache. Tokens and cost are of `replies`; `unpriced` counts
    those whose price is not known.
    """

    cases: int = 0
    candidates: int = 0
    calls: int = 0
    replies: int = 0
    reused: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    unpriced: int = 0
    errors: int = 0
    retries: int = 0
    in_flight: int = 0
    started: float = 0.0

    def count(self, row: ReplyRow) -> None:
        """One more reply is stored."""
        self.replies += 1
        self.tokens_in += row.tokens_in or 0
        self.tokens_out += row.tokens_out or 0
        if row.error is not None:
            self.errors += 1
        elif row.cost is None:
            self.unpriced += 1
        else:
            self.cost += row.cost


def sum_tallies(tallies: Sequence[CallTally]) -> CallTally:
    """The sum of several tallies.

    >>> sum_tallies([CallTally(cases=2, cost=0.5), CallTally(cases=1, cost=0.25)]).cost
    0.75
    """
    names = [one.name for one in fields(CallTally) if one.name != "started"]
    return CallTally(
        **{name: sum(getattr(one, name) for one in tallies) for name in names},
        started=min((one.started for one in tallies), default=0.0),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """What all calls of a run share: where replies are kept, what bounds and prices them, and what was done so far.

    `cache` takes and keeps replies of deterministic requests across runs. `seed` is that of the requests: None seeds
    none of them.
    """

    store: Store
    limits: Limits = field(default_factory=Limits)
    price: PriceFunction | None = None
    cache: Cache | None = None
    seed: int | None = None
    tally: CallTally = field(default_factory=CallTally)


class Gate:
    """Lets as many through as the pace allows, first come first served."""

    def __init__(self, pace: Pace) -> None:
        self.allowance, self.active = pace.allowance, 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def try_enter(self) -> bool:
        """Enter if there is room and nobody waits; whether it did."""
        if self._waiting or self.active >= int(self.allowance.allowed):
            return False
        self.active += 1
        return True

    async def enter(self) -> None:
        if self.try_enter():
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was let in, and cancelled before it ran
                self.leave()
            raise

    def leave(self) -> None:
        self.active -= 1
        while self._waiting and self.active < int(self.allowance.allowed):
            turn = self._waiting.popleft()
            if not turn.done():
                self.active += 1
                turn.set_result(None)


class CallTimeout:
    """Ends what takes longer than so many seconds with RetryableError: `with timeout: await ...`.

    It does what asyncio.timeout does in a tenth of the time: all calls may take equally long, so the first to begin is
    the first to be late, and one timer serves all.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._since: dict[asyncio.Task[Any], float] = {}
        self._late: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        self._since[task] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self.seconds, self._look, loop)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._since.pop(task, None)
        if task in self._late:
            self._late.remove(task)
            # The task may have been cancelled from outside as well: then the cancellation must go through.
            if task.uncancel() == 0 and kind is asyncio.CancelledError:
                raise RetryableError(f"no reply within {self.seconds:g} s") from None

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel those that are late, and look again when the next may be."""
        self._timer = None
        while self._since:
            task, since = next(iter(self._since.items()))
            if since + self.seconds > loop.time():
                self._timer = loop.call_at(since + self.seconds, self._look, loop)
                return
            del self._since[task]
            self._late.add(task)
            task.cancel()


class CallQueue:
    """The queue of calls to one model.

    A call that fails keeps its place in the queue while it waits to try again: a server that is down, or asks for
    less, then gets less. `clock` and `sleep` are arguments so that a test need not wait.
    """

    def __init__(
        self,
        model: Model,
        context: CallContext,
        *,
        budget: Budget | None = None,
        random: Random | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        limits = context.limits
        self.model, self.store, self.limits, self.price = model, context.store, limits, context.price
        self.tally = context.tally
        self.budget = budget if budget is not None else Budget(limits, clock())
        self.concurrency = limits.concurrency or model.concurrency
        self.samples = model.samples
        self.pace = Pace(self.concurrency, limits.requests_per_second, limits.tokens_per_minute)
        self.gate = Gate(self.pace)
        self.timeout = CallTimeout(limits.timeout * model.batch)
        self.reached = False  # whether the model has answered, be it with an error
        self._length = 0.0  # moving average of the tokens of an output
        self._random = random or Random(0)  # noqa: S311 - spreads retries, hides nothing
        self._clock, self._sleep = clock, sleep
        self._waiting: deque[PendingRequest] = deque()
        self._batches: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def ask(self, pending: PendingRequest) -> list[ReplyRow]:
        """The rows of a request, stored and counted; fewer only when a budget is used up."""
        if self.model.batch > 1:
            await self._join(pending)
        else:
            await self.gate.enter()
            try:
                await self._serve([pending])
            finally:
                self.gate.leave()
        if pending.stored is not None:
            await pending.stored
        rows = [pending.rows[index] for index in sorted(pending.rows)]
        for row in rows:
            self.tally.count(row)
        return rows

    async def close(self) -> None:
        """End the batches under way."""
        self.timeout.close()
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._batches:
            task.cancel()
        await asyncio.gather(*self._batches, return_exceptions=True)

    # one call and what follows from it

    async def _serve(self, batch: list[PendingRequest]) -> None:
        """Call until everything is there, or has failed, or a budget is used up."""
        while batch:
            tokens = sum(self._estimate(one) for one in batch) if self.pace.counts_tokens else 0.0
            # calls under way may spend what is left of the budget: wait for them instead of going over it
            while self.budget.tight and not self._spent():
                await self._sleep(WAITING)
            if self._spent() or not (self.pace.free or await self._turn(len(batch), tokens)):
                return
            started = self._clock()
            try:
                await self._call(batch, started, tokens)
            except RequestRejected as problem:
                self.reached = True
                await self._reject(batch, problem)
            except (RetryableError, OSError) as problem:
                self.reached = self.reached or not (isinstance(problem, RetryableError) and problem.unreachable)
                await self._retry_or_give_up(batch, problem, started)
            else:
                self.reached = True
                self.pace.allowance.faster()
            batch = [one for one in batch if one.missing]

    async def _turn(self, calls: int, tokens: float) -> bool:
        """Wait until the next call may be made; False when none may any more."""
        start = self.pace.start(calls, tokens, self._clock())
        while not self._spent():
            now = self._clock()
            wait = max(start, self.pace.until) - now
            if wait <= 0:
                return True
            await self._sleep(min(wait, self.budget.left(now)))
        return False

    def _spent(self) -> bool:
        return not self.budget.unlimited and self.budget.reached(self._clock())

    async def _call(self, batch: list[PendingRequest], started: float, tokens: float) -> None:
        """One call, and what it gave to the store; also what it gave before it failed."""
        before = sum([one.tokens for one in batch]) if tokens else 0
        self.tally.calls += 1
        self.tally.in_flight += 1
        outputs = sum([len(one.keys) - len(one.rows) for one in batch])
        self.budget.pending += outputs
        for one in batch:
            one.calls += 1
        try:
            ask = self._loglikelihood if isinstance(batch[0], PendingLogLikelihoods) else self._generate
            with self.timeout:
                await ask(batch, started)
        finally:
            self.tally.in_flight -= 1
            self.budget.pending -= outputs
            if tokens:
                self.pace.used(tokens, sum([one.tokens for one in batch]) - before)

    def _estimate(self, one: PendingRequest) -> float:
        """Tokens a request will need: those of its prompt, and outputs as long as those before, or as they may be."""
        length = self._length or (one.request.sampling.max_tokens if isinstance(one, PendingOutputs) else 0)
        return one.prompt_tokens + len(one.keys) * length

    async def _generate(self, batch: list[Any], started: float) -> None:
        parts = [one.part() for one in batch]
        got: list[dict[int, Reply]] = [{} for _ in batch]
        try:
            async for reply in self.model.generate([request for _, request in parts]):
                at = reply.place
                first, request = parts[at]
                if 0 <= reply.index < request.n:  # some servers give more outputs than `n`
                    got[at].setdefault(reply.index, reply)
                    if len(got[at]) == request.n:
                        self._keep_replies(batch[at], first, got[at], started)
        finally:
            for one, (first, request), replies in zip(batch, parts, got, strict=True):
                if 0 < len(replies) < request.n:
                    self._keep_replies(one, first, replies, started)
        if not any(got):
            raise RetryableError("the reply held no output")
        for (_, request), replies in zip(parts, got, strict=True):
            if len(replies) == 1 < request.n:
                self.samples = 1  # some servers ignore `n`: from now on each request is for one output

    def _keep_replies(self, pending: PendingOutputs, first: int, replies: dict[int, Reply], started: float) -> None:
        rows = pending.take(first, replies, self.model.name, self.price, self._clock() - started)
        self._put(pending, rows)
        if self.pace.counts_tokens:
            for row in rows:
                self._length += ((row.tokens_out or 0) - self._length) * (0.1 if self._length else 1.0)

    async def _loglikelihood(self, batch: list[Any], started: float) -> None:
        likelihoods = await self.model.loglikelihood([pair for one in batch for pair in one.pairs])
        seconds, at = self._clock() - started, 0
        for one in batch:
            self._put(one, one.take_likelihoods(likelihoods[at : at + len(one.options)], seconds))
            at += len(one.options)

    def _put(self, pending: PendingRequest, rows: list[ReplyRow]) -> None:
        """Hand rows to the store. The commit is awaited later, in `ask`: the next call need not wait for the disk."""
        pending.stored = asyncio.get_running_loop().create_future()
        self.store.put(rows, pending.stored)
        for row in rows:
            if row.error is None:
                self.budget.spend(row.cost, (row.tokens_in or 0) + (row.tokens_out or 0))

    # what went wrong

    async def _retry_or_give_up(self, batch: list[PendingRequest], problem: Exception, started: float) -> None:
        """Wait, and let go what has failed too often."""
        now = self._clock()
        after = problem.after if isinstance(problem, RetryableError) else None
        if after is not None or (isinstance(problem, RetryableError) and problem.busy):
            self.pace.allowance.slower(started, now)
        for one in batch:
            one.failures += 1
            if not self.reached and one.failures >= min(REFUSALS, self.limits.retries + 1):
                raise WorldError(f"{self.model.name}: {problem}. Check that the server is running")
            if one.failures > self.limits.retries:
                self._give_up(one, problem)
        failing = [one.failures for one in batch if one.missing]
        if not failing:
            return
        self.tally.retries += 1
        if after is not None:
            self.pace.pause(after, now)  # everybody waits, this call too
        if after is None or after < SHORT:
            await self._sleep(min(backoff(max(failing), self._random), self.budget.left(now)))

    async def _reject(self, batch: list[PendingRequest], problem: RequestRejected) -> None:
        """The server rejected a call. Of several requests in a call each is sent alone; so is each output of a request.

        A server may take no more than one output per request, or have refused because of one of them. When the first
        that is sent alone is rejected too, so would be the others.
        """
        if len(batch) > 1:
            for one in batch:
                await self._serve([one] if one.missing else [])
        elif batch[0].ask_singly():
            self._give_up(batch[0], problem, 1 if batch[0].rows else None)

    def _give_up(self, pending: PendingRequest, problem: Exception, most: int | None = None) -> None:
        rows = pending.error_rows(one_line(str(problem)) or type(problem).__name__)[:most]
        self._put(pending, rows)
        pending.rows.update((row.repeat - pending.repeat, row) for row in rows)

    # models that take several requests in one call

    async def _join(self, pending: PendingRequest) -> None:
        """Wait for others, and be served with them."""
        pending.served = asyncio.get_running_loop().create_future()
        self._waiting.append(pending)
        self._schedule_batch()
        await pending.served

    def _schedule_batch(self) -> None:
        """A full batch goes at once; one that is not waits a moment for more."""
        if len(self._waiting) >= self.model.batch:
            self._start_batches()
        elif self._waiting and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LINGER, self._start_batches)

    def _start_batches(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting and self.gate.try_enter():
            task = asyncio.create_task(self._serve_batch(self._next_batch()))
            self._batches.add(task)
            task.add_done_callback(self._batches.discard)

    def _next_batch(self) -> list[PendingRequest]:
        """The next batch: of one kind, without requests whose caller was cancelled."""
        batch: list[PendingRequest] = []
        while self._waiting and len(batch) < self.model.batch:
            if batch and type(self._waiting[0]) is not type(batch[0]):
                break
            one = self._waiting.popleft()
            if one.served is not None and not one.served.done():
                batch.append(one)
        return batch

    async def _serve_batch(self, batch: list[PendingRequest]) -> None:
        try:
            await self._serve(batch)
        except Exception as problem:  # everybody who waits for this batch gets what stopped it
            for served in _waiting_for(batch):
                served.set_exception(problem)
        except BaseException:
            for served in _waiting_for(batch):
                served.cancel()
            raise
        else:
            for served in _waiting_for(batch):
                served.set_result(None)
        finally:
            self.gate.leave()
            self._schedule_batch()


def _waiting_for(batch: list[PendingRequest]) -> list[asyncio.Future[None]]:
    return [one.served for one in batch if one.served is not None and not one.served.done()]


@dataclass(slots=True, kw_only=True, eq=False)
class PendingRequest(ABC):
    """What one call will answer. Output j is that of repeat `repeat + j`, stored under `keys[j]`."""

    stage: str
    case_id: str
    repeat: int
    keys: Sequence[bytes]
    rows: dict[int, ReplyRow] = field(default_factory=dict)
    calls: int = 0
    failures: int = 0
    stored: asyncio.Future[None] | None = None  # done when the last rows are committed: the store writes in order
    served: asyncio.Future[None] | None = None  # done when the batch that this request is part of has been served

    @property
    def missing(self) -> bool:
        return len(self.rows) < len(self.keys)

    def ask_singly(self) -> bool:
        """Ask for one output at a time from now on; True if that was so already."""
        return True

    @property
    def tokens(self) -> int:
        """All tokens of the rows so far."""
        return sum((row.tokens_in or 0) + (row.tokens_out or 0) for row in self.rows.values())

    @property
    @abstractmethod
    def prompt_tokens(self) -> int:
        """About how many tokens are sent."""

    def row(self, index: int, **columns: Any) -> ReplyRow:
        """A row of output `index`; columns that are not given are None."""
        values: dict[str, Any] = dict.fromkeys(ReplyRow._fields) | columns
        values |= {"key": self.keys[index], "case_id": self.case_id, "stage": self.stage, "repeat": self.repeat + index}
        return ReplyRow(**{**values, "attempts": self.calls, "created": time.time()})

    def error_rows(self, reason: str) -> list[ReplyRow]:
        """A row for each output that never came."""
        return [self.row(index, error=reason) for index in range(len(self.keys)) if index not in self.rows]


@dataclass(slots=True, kw_only=True, eq=False)
class PendingOutputs(PendingRequest):
    """Outputs of one prompt."""

    request: Request
    single: bool = False

    def ask_singly(self) -> bool:
        already, self.single = self.single or len(self.keys) == 1, True
        return already

    @property
    def prompt_tokens(self) -> int:
        return prompt_tokens(self.request.prompt)

    def part(self) -> tuple[int, Request]:
        """The first outputs that are missing, as one request, and the place of the first of them.

        They are consecutive, because output j of a seeded request has the seed plus j.
        """
        if not self.rows and not self.single:
            return 0, self.request
        first = next(i for i in range(len(self.keys)) if i not in self.rows)
        last = next((i for i in range(first, len(self.keys)) if i in self.rows), len(self.keys))
        return first, part_of(self.request, first, 1 if self.single else last - first)

    def take(
        self, first: int, replies: Mapping[int, Reply], model: str, price: PriceFunction | None, seconds: float
    ) -> list[ReplyRow]:
        """The rows of what one call gave: the prompt's tokens and price, and the time, are shared by all that came."""
        got = sorted(replies)
        seconds /= max(1, len(got))
        tokens_in, tokens_out, counted = self._tokens([replies[i] for i in got])
        costs = shared_cost(model, tokens_in, tokens_out, price)
        detail = '{"counted":true}' if counted else None
        rows = []
        for j, i in enumerate(got):
            # whole tokens whose sum over the outputs is exactly that of the prompt
            share = tokens_in * (j + 1) // len(got) - tokens_in * j // len(got)
            at, reply = first + i, replies[i]
            # by position, in the order of ReplyRow: keywords would cost time, and this is done for every reply
            where = (self.keys[at], self.case_id, self.stage, self.repeat + at)
            content = (reply.text, reply.reasoning, reply.finish, reply.logprob)
            took = (share, tokens_out[j], costs[j], seconds)
            self.rows[at] = ReplyRow._make((*where, *content, *took, None, self.calls, detail, time.time()))
            rows.append(self.rows[at])
        return rows

    def _tokens(self, replies: Sequence[Reply]) -> tuple[int, list[int], bool]:
        """Tokens of the prompt and of each output, by the server or else counted; whether any was counted."""
        tokens_in, tokens_out = replies[0].tokens_in, [reply.tokens_out for reply in replies]
        if tokens_in is not None and None not in tokens_out:
            return tokens_in, cast("list[int]", tokens_out), False
        usages = [usage_of(self.request.prompt, reply) for reply in replies]
        return usages[0].tokens_in, [usage.tokens_out for usage in usages], True


def part_of(request: Request, first: int, n: int) -> Request:
    """Outputs `first` to `first + n - 1` of a request, as a request of their own."""
    sampling, repeat = request.sampling, request.repeat
    if sampling.seed is not None:
        sampling = replace(sampling, seed=sampling.seed + first)
    return replace(request, sampling=sampling, n=n, repeat=None if repeat is None else repeat + first)


def shared_cost(
    model: str, tokens_in: int, tokens_out: Sequence[int], price: PriceFunction | None
) -> list[float | None]:
    """What each output of one request costs: an equal share of the prompt, and its own tokens.

    >>> shared_cost("m", 100, [10, 30], lambda m, i, o: i * 0.01 + o * 0.1)
    [1.5, 3.5]
    >>> shared_cost("m", 100, [10, 30], None)
    [None, None]
    """
    n, total = len(tokens_out), sum(tokens_out)
    if price is None or n == 0:
        return [None] * n
    whole = price(model, tokens_in, total)
    if whole is None or n == 1:
        return [whole] * n
    prompt = price(model, tokens_in, 0) or 0.0
    each = (whole - prompt) / total if total else 0.0
    return [prompt / n + each * tokens for tokens in tokens_out]


@dataclass(slots=True, kw_only=True, eq=False)
class PendingLogLikelihoods(PendingRequest):
    """The log-likelihood of each option after a prompt. The likeliest is chosen; without `choose` there is only one."""

    prompt: str
    options: Sequence[tuple[str, str]]
    choose: bool

    @property
    def prompt_tokens(self) -> int:
        return sum(count_tokens(self.prompt) + count_tokens(text) for _, text in self.options)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return [(self.prompt, text) for _, text in self.options]

    def take_likelihoods(self, likelihoods: Sequence[Likelihood], seconds: float) -> list[ReplyRow]:
        """The row: the label of the likeliest option, or the one text, and everything in `detail`."""
        import orjson

        if any(one.logprob != one.logprob for one in likelihoods):  # NaN: no option would be the likeliest
            self.rows[0] = self.row(0, error="the model gave a log-likelihood that is not a number", seconds=seconds)
            return [self.rows[0]]
        best = max(range(len(likelihoods)), key=lambda i: likelihoods[i].logprob)
        label, text = self.options[best]
        only = likelihoods[0]
        detail = self._choice_detail(likelihoods) if self.choose else {"greedy": only.greedy, "tokens": only.tokens}
        self.rows[0] = self.row(
            0,
            text=label if self.choose else text,
            logprob=likelihoods[best].logprob,
            seconds=seconds,
            detail=orjson.dumps(detail).decode(),
        )
        return [self.rows[0]]

    def _choice_detail(self, likelihoods: Sequence[Likelihood]) -> dict[str, Any]:
        """What each option got. `bytes` are those of its text without the space before it; they divide the sum."""
        sizes = [max(1, len(text.strip().encode())) for _, text in self.options]
        best = max(range(len(sizes)), key=lambda i: likelihoods[i].logprob / sizes[i])
        options = [
            {"label": label, "logprob": one.logprob, "tokens": one.tokens, "bytes": size}
            for (label, _), one, size in zip(self.options, likelihoods, sizes, strict=True)
        ]
        return {"options": options, "normalised": self.options[best][0]}
