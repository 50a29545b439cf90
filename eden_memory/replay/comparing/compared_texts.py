"""What a comparison reads of a memory: its scopes, and what is told in them."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from eden_memory.replay.comparing.differing import Told
from eden_memory.schemas.scopes import Audience, Scope


@dataclass(frozen=True, slots=True)
class ScopeSeen:
    """A scope, and whose it is; ids are typed."""

    key: str
    agent_id: str
    audience: Audience = ()
    facts: int = 0
    """Active ones."""

    @property
    def scope(self) -> Scope:
        """The scope itself."""
        return Scope.of_key(self.key, self.agent_id, self.audience)


@dataclass(slots=True)
class Texts:
    """Texts of one kind in one scope by what they say: equal keys say the very same."""

    by_key: dict[str, Told] = field(default_factory=dict[str, Told])
    models: set[str | None] = field(default_factory=set[str | None])
    """Facts: whose vectors they have; None among them: some have none."""


class Telling(Protocol):
    """A memory as it is stored at this moment."""

    def scopes(self, beginnings: Sequence[str]) -> AsyncGenerator[ScopeSeen]:
        """In the order of their keys; only those whose key begins with one of these, if any are given."""
        ...

    async def facts(self, scope_keys: Sequence[str]) -> Mapping[str, Texts]:
        """Active ones, by scope key."""
        ...

    async def reflections(self, scope_keys: Sequence[str]) -> Mapping[str, Texts]:
        """All of them, absorbed or not, by scope key."""
        ...

    async def blobs(self, scope_keys: Sequence[str]) -> Mapping[str, str]:
        """By scope key."""
        ...

    def vectors(self, fact_ids: Sequence[str]) -> AsyncGenerator[tuple[str, bytes]]:
        """Packed float32 vectors of those that (still) have one, in any order."""
        ...
