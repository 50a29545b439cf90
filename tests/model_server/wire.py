"""What all wire formats have in common: a chat request read, a reply to be written, a refusal of the request."""

import hashlib
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from tests.model_server.config import FaultName

Body = dict[str, Any]
Response = tuple[int, dict[str, str], bytes]
Ending = Literal["stop", "length", "refusal", "blocked", "none"]


CHARACTERS_A_TOKEN = 4


def tokens(characters: int) -> int:
    """Characters / 4, rounded up."""
    return -(-characters // CHARACTERS_A_TOKEN)


class CacheRule(NamedTuple):
    """Tokens of the shortest prefix that a provider caches, and the steps in which longer ones count."""

    least: int
    step: int


@dataclass(frozen=True, slots=True)
class Chat:
    """A chat request of either provider."""

    model: str
    system: str
    turns: tuple[tuple[str, str], ...]
    """(`user` or `assistant`, text)."""
    schema: Body | None
    schema_name: str | None
    schema_size: int
    """Characters."""
    form: Literal["schema", "json", "text"]
    most: int | None = None
    """Tokens of the answer, at most."""
    bound: str | None = None
    """What the request calls that."""
    tools: tuple[str, ...] = ()
    """Names of the functions that the model may call."""
    effort: str | None = None

    @property
    def user(self) -> str:
        """The first user turn: the prompt itself, before any repair."""
        return next((text for role, text in self.turns if role == "user"), "")

    @property
    def tokens(self) -> int:
        """Of the input."""
        return tokens(len(self.system) + self.schema_size + sum(len(text) for _, text in self.turns))

    def hash(self) -> str:
        """Of everything that the model reads."""
        digest = hashlib.sha256(self.model.encode())
        for role, text in (("system", self.system), *self.turns):
            digest.update(f"\0{role}\0{text}".encode())
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Embed:
    """An embedding request of either provider."""

    model: str
    texts: tuple[str, ...]
    dimensions: int | None
    form: Literal["base64", "float"]
    batch: bool = True

    def hash(self) -> str:
        """Of model and texts."""
        return hashlib.sha256("\0".join((self.model, *self.texts)).encode()).hexdigest()

    @property
    def tokens(self) -> int:
        """Of the input."""
        return sum(tokens(len(text)) for text in self.texts)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer with what it counts."""

    number: int
    text: str
    ending: Ending
    input: int
    cached: int
    output: int
    reasoning: int
    call: str | None = None
    """The function that is called, in place of a text."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An answer that is none."""

    fault: FaultName | Literal["bad_format", "bad_request"]
    retry_after: float = 1.0
    says: str = ""
    param: str | None = None


class Wire(Protocol):
    """How one provider words its responses; the modules `wire_*` are such."""

    def cache_rule(self, model: str) -> CacheRule:
        """The provider's cache of prompts, as documented for a model."""
        ...

    def chat_response(self, chat: Chat, reply: Reply) -> Response:
        """A chat's answer."""
        ...

    def embed_response(self, embed: Embed, dimensions: int) -> Response:
        """Vectors."""
        ...

    def problem_response(self, problem: Problem) -> Response:
        """An error."""
        ...
