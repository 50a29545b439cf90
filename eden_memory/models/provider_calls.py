"""One request to a provider and what came back: its JSON, its effort, and when to ask again.

Sources: OpenAI's API reference, `reasoning_effort` (gpt-5.1 and later know `none`, not `minimal`; earlier ones the
other way round; o models begin at `low`); Google's guide to thinking (levels since Gemini 3, a budget of tokens
for 2.5, and the budgets that its OpenAI-compatible endpoint takes the same words for); Anthropic's page on effort
(its models since Opus 4.5, Sonnet 4.6 and Haiku 5.5).
"""

import re
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from operator import add, sub
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar, cast

import orjson

from eden_memory.errors import ProviderError
from eden_memory.schemas.answers import ModelAnswer
from eden_memory.schemas.events.usage import CallOutcome
from eden_memory.settings import Effort

Finish = Literal["complete", "truncated", "refused"]


@dataclass(frozen=True, slots=True)
class PromptTurn:
    """One message of the request after the system prompt."""

    role: Literal["user", "assistant"]
    text: str


class Tokens(NamedTuple):
    """The tokens that the provider counted; `cached` is a part of `input`, `reasoning` of `output`.

    `written`: the part of `input` that was stored in the provider's cache, where that has a price of its own.
    """

    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0
    written: int = 0

    def plus(self, other: "Tokens") -> "Tokens":
        """Return the sum of two counts."""
        return Tokens(*map(add, self, other))

    def less(self, part: "Tokens") -> "Tokens":
        """Return what is left of a count without a part of it."""
        return Tokens(*map(sub, self, part))


@dataclass(frozen=True, slots=True)
class Completion:
    """An unchecked answer of a chat model."""

    text: str
    finish: Finish
    tokens: Tokens
    response_model: str | None = None

    def __post_init__(self) -> None:
        """Replace single halves of surrogate pairs: no text that holds one can be stored or read."""
        text = self.text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        object.__setattr__(self, "text", text)


@dataclass(frozen=True, slots=True)
class Trial:
    """A request on the way to the one that counts: a call of its own, whose tokens are in the whole completion's."""

    outcome: CallOutcome
    tokens: Tokens
    started_at: datetime
    seconds: float
    response_model: str | None = None
    error: str | None = None


class ProviderConnection(Protocol):
    """A provider's connections, under its name."""

    @property
    def name(self) -> str:
        """`openai`, `anthropic`, `google`, or the host of a compatible endpoint."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


C = TypeVar("C", bound=ProviderConnection)


class Adapter(Generic[C]):
    """The part that all adapters share: the provider's name, and its connections, which end with the adapter."""

    def __init__(self, connection: C) -> None:
        self._connection = connection

    @property
    def name(self) -> str:
        """The provider's."""
        return self._connection.name

    async def close(self) -> None:
        """Close the connections."""
        await self._connection.close()


class ChatAdapter(Adapter[C]):
    """The part that all chat adapters share: how hard models are asked to think."""

    def __init__(self, connection: C, effort: Effort | None = None) -> None:
        super().__init__(connection)
        self._effort: Effort | None = effort


class ChatProvider(ProviderConnection, Protocol):
    """One provider's chat models."""

    async def complete(
        self,
        model: str,
        system: str,
        turns: Sequence[PromptTurn],
        answer: type[ModelAnswer],
        most: int | None = None,
        trials: list[Trial] | None = None,
    ) -> Completion:
        """One request, no retries; CallFailed, PermanentError (the provider will never accept this input).

        `most`: tokens of the longest answer wanted, without what the model thinks before it. Requests made on the way
        to the one that counts are added to `trials`, also when the call fails.
        """
        ...


class EmbeddingProvider(ProviderConnection, Protocol):
    """One provider's embedding models."""

    async def embed(self, model: str, texts: Sequence[str]) -> tuple[list[list[float]], Tokens]:
        """A vector for each text, in order; CallFailed, PermanentError."""
        ...


class CallFailed(ProviderError):  # noqa: N818 - reads as what happened
    """A request that brought no answer: the provider was away, busy or too slow, or refused our key.

    `charged`: whether it counts against its question; a refusal for the rate does so in the call budget alone.
    """

    def __init__(
        self,
        outcome: CallOutcome,
        reason: str,
        retry_after: float | None = None,
        *,
        charged: bool = True,
        alone: bool = True,
    ) -> None:
        super().__init__(reason, retry_after, counts=charged and outcome != "rate_limited", alone=alone)
        self.outcome: CallOutcome = outcome
        self.charged = charged


SHORTEST_CALL = 1e-6


@dataclass(slots=True)
class Stopwatch:
    """When a call left, by the wall clock, and how many seconds it took."""

    started_at: datetime = datetime.min
    seconds: float = 0.0
    left: bool = False

    @property
    def ended_at(self) -> datetime:
        """When its answer arrived."""
        return self.started_at + timedelta(seconds=self.seconds)

    @contextmanager
    def timing(self) -> Generator[None]:
        """Time the request that is sent in the block."""
        self.left, self.started_at, begun = True, datetime.now(UTC), time.perf_counter()
        try:
            yield
        finally:
            self.seconds = max(SHORTEST_CALL, time.perf_counter() - begun)


TAKEN_BY_OPENAI: tuple[tuple[re.Pattern[str], tuple[Effort, ...]], ...] = (
    (re.compile(r"gpt-5\.\d+(-(mini|nano|\d{4}-\d\d-\d\d))*"), ("none", "low", "medium", "high")),
    (re.compile(r"gpt-5(-(mini|nano|\d{4}-\d\d-\d\d))*"), ("minimal", "low", "medium", "high")),
    (re.compile(r"o[134](-(mini|\d{4}-\d\d-\d\d))*"), ("low", "medium", "high")),
)

EFFORTS: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high")

BUDGETS: Mapping[Effort, int] = {
    "none": 0,
    "minimal": 1_024,
    "low": 1_024,
    "medium": 8_192,
    "high": 24_576,
}

NEVER_ACCEPTED = frozenset({400, 413, 422})
"""Status codes that concern the request itself."""

THOUGHTS = 24_576
"""Tokens that a model may think beyond its answer: providers count both as one."""

LEAST_BUDGET_OF_PRO = 128
"""Gemini 2.5 Pro always thinks."""

Level = str
"""`MINIMAL`, `LOW`, `MEDIUM` or `HIGH`."""


def openai_effort(model: str, effort: Effort | None) -> Effort | None:
    """Return the nearest level that one of OpenAI's models accepts, the higher of two; None: it accepts none."""
    if effort is None:
        return None
    takes = next((takes for named, takes in TAKEN_BY_OPENAI if named.fullmatch(model)), ())
    return next((take for take in takes if EFFORTS.index(take) >= EFFORTS.index(effort)), None)


def thinks(model: str) -> bool:
    """Whether it is one of OpenAI's models that think before they answer."""
    return any(named.fullmatch(model) for named, _ in TAKEN_BY_OPENAI)


def google_thinking(model: str, effort: Effort | None) -> Level | int | None:
    """Return a level, or a budget of tokens; None: the model accepts neither, or nothing is set."""
    name = model.removeprefix("models/")
    if effort is None:
        return None
    if name.startswith("gemini-3"):
        least = "MINIMAL" if re.match(r"gemini-3(\.[1-5])?-flash", name) else "LOW"
        return least if effort in ("none", "minimal") else effort.upper()
    if name.startswith("gemini-2.5"):
        return max(BUDGETS[effort], LEAST_BUDGET_OF_PRO if "-pro" in name else 0)
    return None


TAKEN_BY_ANTHROPIC = re.compile(
    r"claude-(fable-|mythos-|opus-(4-[5-9]|[5-9])|sonnet-(4-[6-9]|[5-9])|haiku-[5-9]).*"
)


def anthropic_effort(model: str, effort: Effort | None) -> Effort | None:
    """Return the nearest level that one of Anthropic's models accepts; None: it accepts none."""
    if effort is None or not TAKEN_BY_ANTHROPIC.fullmatch(model):
        return None
    return "low" if effort in ("none", "minimal") else effort


MOST = 3_600.0
"""Longest Retry-After in seconds: a provider that says `inf`, or a year, is asked again after an hour."""


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds, MOST at most; of a date, from the response's own `Date`, so that no two clocks need to agree, else
    from `now`."""
    for name, divisor in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            return bounded(float(headers[name]) / divisor)
        except (KeyError, ValueError):
            continue
    until = _date(headers.get("retry-after"))
    if until is None:
        return None
    since = _date(headers.get("date")) or now or datetime.now(UTC)
    return bounded((until - since).total_seconds())


def bounded(seconds: float) -> float:
    """From 0 to MOST."""
    return min(MOST, max(0.0, seconds))


def _date(text: str | None) -> datetime | None:
    """An HTTP date; one without a zone is UTC."""
    try:
        found = parsedate_to_datetime(text or "")
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


Body = dict[str, Any]

WORD = re.compile(r"[\w.\[\]-]{1,80}")


def object_of(value: object) -> Body:
    """A JSON object, else an empty one."""
    return cast(Body, value) if isinstance(value, dict) else {}


def objects_of(value: object) -> list[Body]:
    """The objects of a JSON array."""
    return (
        [cast(Body, item) for item in cast(list[Any], value) if isinstance(item, dict)]
        if isinstance(value, list)
        else []
    )


def text_of(value: object) -> str:
    """A string, else an empty one."""
    return value if isinstance(value, str) else ""


def word_of(value: object) -> str:
    """A code such as `model_not_found` or the path of a parameter; else, as it may quote what was sent, nothing."""
    return value if isinstance(value, str) and WORD.fullmatch(value) else ""


def count_of(value: object) -> int:
    """A whole number that is not negative, else 0."""
    return max(0, int(value)) if isinstance(value, (int, float)) else 0


def numbers_of(value: object) -> list[float]:
    """A JSON array of numbers, else an empty one."""
    return cast(list[float], value) if isinstance(value, list) else []


Schema = dict[str, Any]


@lru_cache
def schema_of(answer: type[ModelAnswer], *, bounded: bool = False) -> Schema:
    """Without references, titles and the classes' descriptions: only what a model needs. Not to be changed.

    `bounded`: with the most items of each list, which not every provider takes.
    """
    schema = answer.model_json_schema()
    left_out = {"title"} if bounded else {"title", "maxItems"}
    return cast(Schema, _plain(schema, schema.get("$defs", {}), left_out))


def _plain(part: Any, definitions: Schema, left_out: set[str]) -> Any:
    if isinstance(part, list):
        return [_plain(item, definitions, left_out) for item in cast(list[Any], part)]
    if not isinstance(part, dict):
        return part
    found = cast(Schema, part)
    if "$ref" in found:
        return _plain(definitions[found["$ref"].rpartition("/")[2]], definitions, left_out)
    if "properties" in found:
        properties = {
            name: _plain(value, definitions, left_out) for name, value in found["properties"].items()
        }
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
    return {
        name: _plain(value, definitions, left_out) for name, value in found.items() if name not in left_out
    }


@lru_cache
def described(answer: type[ModelAnswer]) -> str:
    """Return the instruction for a model that takes no schema."""
    schema = orjson.dumps(schema_of(answer, bounded=True)).decode()
    return (
        f"Answer with one JSON object ({answer.__name__}) and nothing else: no explanation, no code fence. "
        f"It must be valid against this JSON Schema:\n{schema}"
    )


THOUGHT = re.compile(r"^\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)

FENCED = re.compile(r"```[\w-]*[ \t]*\n(.*?)```", re.DOTALL)

STRING_OR_COMMA = re.compile(r'("(?:[^"\\]|\\.)*+(?:"|\\?\Z))|,(?=\s*[}\]])', re.DOTALL)
"""A string that is cut off matches to the end: else every quote in it would be tried as a beginning."""


def found_json(text: str) -> str:
    """The first whole JSON object in it, fences, thoughts and chatter around it left out; else the text as it is.

    A comma before a closing bracket is forgiven; what is cut off is never completed.
    """
    for candidate in candidates(text):
        if isinstance(loaded(candidate), dict):
            return candidate
        forgiven = STRING_OR_COMMA.sub(r"\1", candidate)
        if isinstance(loaded(forgiven), dict):
            return forgiven
    return text


def loaded(text: str) -> object:
    """Return the value of a JSON text; None if it is none."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def candidates(text: str) -> Iterator[str]:
    """Yield what may be the JSON object of an answer: all of it, what stands in fences, and all between braces."""
    said = THOUGHT.sub("", text)
    yield said.strip()
    for block in FENCED.finditer(said):
        yield block[1].strip()
    first, last = said.find("{"), said.rfind("}")
    if 0 <= first < last:
        yield said[first : last + 1]
