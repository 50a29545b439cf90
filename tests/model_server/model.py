"""The model behind the wires: its answers, faults, latency and counts."""

import asyncio
import hashlib
from collections import Counter
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, cast

import orjson

from tests.model_server.config import SPOILED, Config, FaultName
from tests.model_server.prompt_cache import PromptCache
from tests.model_server.rate_limit import CallRate
from tests.model_server.script import UNSHOWN, Fault, Script, asked_of, judged
from tests.model_server.tally import Tally
from tests.model_server.wire import CacheRule, Chat, Embed, Ending, Problem, Reply, Response, Wire, tokens

ENDINGS: dict[FaultName, Ending] = {
    "truncated": "length",
    "refusal": "refusal",
    "blocked": "blocked",
    "no_choices": "none",
}
FORMS = {"schema": 2, "json": 1, "text": 0}
CUT: Response = (200, {"content-type": "application/json", "content-length": "100", "x-cut": "1"}, b"")
MALFORMED: Response = (200, {"content-type": "application/json"}, b"<html>Bad gateway</html>")


class Model:
    """Answers requests of any wire."""

    def __init__(self, script: Script, config: Config) -> None:
        self.script, self.config, self.tally = script, config, Tally()
        self._spent: Counter[int] = Counter()
        self._cache = PromptCache()
        self._number = 0
        self._busy: asyncio.Semaphore | None = None
        self._rate = CallRate(config.calls_per_second)
        self.longest_allowed: dict[str, int] = {}
        """By kind: the newest request's bound of its answer."""
        self.called: dict[str, None] = {}
        """Models that were asked, the first one first."""

    def change(self, **fields: Any) -> None:
        """Set fields of the configuration; rules given count their times from zero."""
        self.config = Config.model_validate({**self.config.model_dump(), **fields})
        if "rules" in fields:
            self._spent.clear()
        if "slots" in fields:
            self._busy = None
        if "calls_per_second" in fields:
            self._rate = CallRate(self.config.calls_per_second)

    def reset(self) -> None:
        """Count from zero, and forget all prompts."""
        self.tally, self._cache = Tally(), PromptCache()

    async def answer(self, wire: Wire, request: Chat | Embed, gone: asyncio.Future[Any]) -> Response | None:
        """The response, after its latency; None where the client has gone (`gone` is done by then)."""
        prompt = request.hash()
        nth = self.tally.seen(prompt)
        asked = asked_of(request, nth) if isinstance(request, Chat) else None
        kind = asked.kind if asked else "embeddings"
        self.tally.begin(kind, prompt)
        self.called[request.model] = None
        outcome, sent = "script_failed", False
        try:
            said = self.script(asked) if asked else ""
            fault = self._fault(request, prompt, nth) or (said.name if isinstance(said, Fault) else None)
            seconds, response, spent = self._prepared(wire, request, kind, said, fault)
            if isinstance(request, Chat) and request.most is not None:
                self.longest_allowed[kind] = request.most
            async with self._slot(request):
                left = await self._gone_within(gone, seconds)
            if left:
                outcome = "abandoned"
                return None
            outcome, sent = fault or ("answered" if spent else "refused"), bool(spent)
            self._count(spent)
            if isinstance(request, Chat) and spent:
                self._cache.remember(request, wire.cache_rule(request.model))
            return response
        finally:
            self.tally.end(kind, prompt, outcome, sent=sent)

    def _slot(self, request: Chat | Embed) -> AbstractAsyncContextManager[Any]:
        """Its turn, where answers are made one after the other."""
        if self.config.slots is None or isinstance(request, Embed):
            return nullcontext()
        if self._busy is None:
            self._busy = asyncio.Semaphore(self.config.slots)
        return self._busy

    def _prepared(
        self, wire: Wire, request: Chat | Embed, kind: str, said: object, fault: FaultName | None
    ) -> tuple[float | None, Response | None, Reply | Embed | None]:
        """(latency or None for ever, response, what it counts)."""
        if fault == "hang":
            return None, None, None
        problem = self._problem(request, fault)
        if problem is not None or fault in ("drop", "malformed"):
            broken = CUT if fault == "drop" else MALFORMED
            return 0.0, wire.problem_response(problem) if problem else broken, None
        if isinstance(request, Embed):
            dimensions = request.dimensions or self.config.dimensions
            return self.config.embed_seconds, wire.embed_response(request, dimensions), request
        reply = self._reply(wire.cache_rule(request.model), request, kind, said, fault)
        seconds = self.config.base_seconds + self.config.token_seconds * reply.output
        return seconds, wire.chat_response(request, reply), reply

    def _fault(self, request: Chat | Embed, prompt: str, nth: int) -> FaultName | None:
        """The outage, the limit of calls a second, a rule, or one by rate."""
        if self.config.outage:
            return "overloaded"
        if isinstance(request, Chat) and not self._rate.allows():
            return "rate_limited"
        for place, rule in enumerate(self.config.rules):
            if rule.times is not None and self._spent[place] >= rule.times:
                continue
            if rule.contains in _read_by_model(request):
                self._spent[place] += 1
                return rule.fault
        digest = hashlib.blake2b(f"{self.config.seed}:{prompt}:{nth}".encode(), digest_size=8).digest()
        drawn = int.from_bytes(digest, "big") / 2**64
        rates = self.config.rates if isinstance(request, Chat) else self.config.embedding_rates
        for name, rate in rates.items():
            drawn -= rate
            if drawn < 0:
                return name
        return None

    def _problem(self, request: Chat | Embed, fault: FaultName | None) -> Problem | None:
        if fault is not None and fault not in SPOILED and fault not in ("drop", "malformed"):
            return Problem(fault, self.config.retry_after)
        if self.config.models is not None and request.model not in self.config.models:
            return Problem("no_model", says=f"Test: the model {request.model} does not exist")
        wanted = request.most or 0 if isinstance(request, Chat) else 0
        if request.tokens + wanted > self.config.context_tokens:
            return Problem("context_length")
        if isinstance(request, Chat) and FORMS[request.form] > FORMS[self.config.supports]:
            return Problem("bad_format", says=f"Test: response_format {request.form} is not supported")
        schema = str(request.schema) if isinstance(request, Chat) else ""
        bounds = (getattr(request, "bound", None), "maxItems" if "maxItems" in schema else None)
        if refused := next((bound for bound in bounds if bound in self.config.refuses), None):
            return Problem("bad_request", says=f"Test: unsupported: {refused}", param=refused)
        return None

    def _reply(self, rule: CacheRule, chat: Chat, kind: str, said: object, fault: FaultName | None) -> Reply:
        answer = judged(cast("dict[str, Any]", said)) if isinstance(said, dict) else {}
        text = _spoiled(said if isinstance(said, str) else orjson.dumps(answer).decode(), kind, fault)
        ending: Ending = ENDINGS.get(fault, "stop") if fault else "stop"
        if chat.most is not None and tokens(len(text)) + self.config.reasoning_tokens > chat.most:
            text, ending = text[: 4 * max(0, chat.most - self.config.reasoning_tokens)], "length"
        self._number += 1
        quiet = self.config.stops_thinking and chat.effort == "none"
        thoughts = 0 if quiet else self.config.reasoning_tokens
        return Reply(
            number=self._number,
            text=text,
            ending=ending,
            input=chat.tokens,
            cached=self._cache.cached(chat, rule),
            output=tokens(len(text)) + thoughts,
            reasoning=thoughts,
            call=chat.tools[0] if chat.tools and self.config.calls_tools else None,
        )

    async def _gone_within(self, gone: asyncio.Future[Any], seconds: float | None) -> bool:
        """Wait so long (None: for ever), and while answers are held; True as soon as the client has gone."""
        await asyncio.wait((gone,), timeout=seconds)
        while self.config.held and not gone.done():
            await asyncio.wait((gone,), timeout=0.01)
        return gone.done()

    def _count(self, spent: Reply | Embed | None) -> None:
        if isinstance(spent, Embed):
            self.tally.embedding_tokens += spent.tokens
            self.tally.texts += len(spent.texts)
        elif spent is not None:
            self.tally.input_tokens += spent.input
            self.tally.cached_tokens += spent.cached
            self.tally.output_tokens += spent.output


def _read_by_model(request: Chat | Embed) -> str:
    if isinstance(request, Embed):
        return "\n".join(request.texts)
    return "\n".join((request.system, *(text for _, text in request.turns)))


def _spoiled(text: str, kind: str, fault: FaultName | None) -> str:
    """The answer as the fault leaves it."""
    spoiled: dict[FaultName, str] = {
        "truncated": text[: len(text) // 2],
        "empty": "",
        "blocked": "",
        "no_choices": "",
        "refusal": "I cannot help with that.",
        "fenced": f"Sure, here it is:\n\n```json\n{text}\n```\nAnything else?",
        "wrong_schema": '{"unexpected": [1, 2, 3]}',
        "unshown_ids": UNSHOWN.get(kind, '{"unexpected": 1}'),
    }
    return spoiled.get(fault, text) if fault else text
