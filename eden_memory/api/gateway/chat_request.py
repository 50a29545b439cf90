"""Read memory's fields of a chat request, and keep the rest byte for byte. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from eden_memory.api.gateway.chat_formats import CHAT_COMPLETIONS, ChatFormat, members_of, with_value
from eden_memory.errors import Invalid, describe
from eden_memory.limits import MOST_HITS, RECALLED_FACTS
from eden_memory.tasks import off_the_loop

T = TypeVar("T")
SMALL_BODY = 100_000
"""Bytes of a request that is read, and taken apart, within a few milliseconds."""
MEMORY_FIELDS = frozenset(
    {"memory_id", "memory_top_k", "memory_recency_weight", "memory_score_threshold", "memory_hits"}
)
"""None of them ever leaves for the provider."""


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """The memory fields of a request; None: not given; `top_k`: how many facts to search for."""

    memory_id: str | int | None = None
    user: str | int | None = None
    top_k: int = RECALLED_FACTS
    recency_weight: float | None = None
    score_threshold: float | None = None
    """The least relevance of a fact, 0 to 1."""


class ChatRequest:
    """A request of one of the chat APIs; Invalid if it is not a JSON object or memory's fields are not valid."""

    def __init__(self, body: bytes, spoken: ChatFormat = CHAT_COMPLETIONS) -> None:
        self._body, self.spoken = body, spoken
        try:
            self._text = body.decode()
            self._members = members_of(self._text, spoken.array)
        except ValueError as error:
            raise Invalid(
                f"the body is no JSON object: {describe(error)}", "Send a request of the API of this path."
            ) from None
        self._fields = {member.name: member for member in self._members}
        fields = {name: member.value for name, member in self._fields.items()}
        self.asked = _asked({**fields, "user": spoken.user(fields)})
        self.messages = spoken.messages(fields)
        self.anchor = spoken.anchor(fields)
        self._grown = False

    @classmethod
    async def read(cls, body: bytes, spoken: ChatFormat = CHAT_COMPLETIONS) -> "ChatRequest":
        """Return the request in a body, which is read beside the event loop if it is large; Invalid."""
        work = partial(cls, body, spoken)
        return work() if len(body) <= SMALL_BODY else await off_the_loop(work)

    async def computed(self, work: Callable[[], T]) -> T:
        """Return what is computed of the request: beside the event loop if it is large."""
        return work() if len(self._body) <= SMALL_BODY else await off_the_loop(work)

    @property
    def choices(self) -> int:
        """Return the number of answers that the request asks for."""
        wanted = self._fields.get("n")
        return wanted.value if wanted is not None and isinstance(wanted.value, int) else 1

    @property
    def names_memory(self) -> bool:
        """Tell whether the request has a field of memory's own."""
        return any(member.name in MEMORY_FIELDS for member in self._members)

    def forwarded(self, stable: str = "", changing: str = "") -> bytes:
        """Return the body for the provider: without memory's fields, with memory where its API has a place for it."""
        text = self._text
        added: dict[str, str] = {}
        if stable or changing:
            added = self.spoken.with_memory(text, self._fields, stable, changing)
        self._grown = bool(added)
        if not added and not self.names_memory:
            return self._body
        kept = [
            added.get(member.name, text[member.start : member.end])
            for member in self._members
            # of several of one name the last one, as JSON readers do
            if member.name not in MEMORY_FIELDS
            and (member.name not in added or member is self._fields[member.name])
        ]
        kept += [member for name, member in added.items() if name not in self._fields]
        return ("{" + ",".join(kept) + "}").encode()

    def echo(self, *, streamed: bool) -> Callable[[bytes], bytes] | None:
        """Return what puts the caller's own member back where a response repeats it; None where none does."""
        path = self.spoken.echoed(streamed=streamed) if self._grown else None
        if path is None:
            return None
        own = self._fields.get(path[-1])
        value = "null" if own is None else self._text[own.value_at : own.end]
        return partial(_put_back, path, value)


def _put_back(path: Sequence[str], value: str, event: bytes) -> bytes:
    try:
        return with_value(event.decode(), path, value).encode()
    except UnicodeDecodeError:
        return event


def _asked(fields: dict[str, Any]) -> MemoryOptions:
    return MemoryOptions(
        memory_id=_id(fields, "memory_id"),
        user=_id(fields, "user"),
        top_k=_top_k(fields.get("memory_top_k")),
        recency_weight=_number(fields, "memory_recency_weight"),
        score_threshold=_number(fields, "memory_score_threshold"),
    )


def _id(fields: dict[str, Any], name: str) -> str | int | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise Invalid(f"{name} is no id", "Give it as text or as an integer.")
    return value


def _top_k(value: Any) -> int:
    if value is None:
        return RECALLED_FACTS
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_HITS:
        raise Invalid("memory_top_k is not valid", f"Give an integer from 0 to {MOST_HITS}.")
    return value


def _number(fields: dict[str, Any], name: str) -> float | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise Invalid(f"{name} is not valid", "Give a number from 0 to 1.")
    return float(value)
