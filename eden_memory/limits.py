"""Numbers that decide what is formed, kept, shown or accepted: constants, and limits of each scope.

docs/reference/settings.md lists them from this file. Numbers that only divide work (batches, pauses, timeouts) stand
in the module that uses them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from eden_memory.schemas.documents import Stream
from eden_memory.schemas.scopes import Scope, ScopeKind, Sharing, SharingMode

CHARACTERS_PER_TOKEN = 4.5
"""Characters that count as one token of a window."""
USER_WEIGHT = 1.0
"""Weight of a user's tokens in a window."""
TOOL_WEIGHT = 0.5
"""Weight of the tokens of tools, the system and others in a window."""
ASSISTANT_WEIGHT = 0.2
"""Weight of an assistant's tokens in a window."""
SHOWN_OF_A_BUFFER = 2
"""A prompt and a context show the newest of a buffer: so many times the scope's threshold, at most."""
ABSORBED_AT_ONCE = 200
"""Reflections that one consolidation absorbs, at most."""
CONSOLIDATION_SECONDS = 30.0
"""Seconds of the windows' time between two consolidations of a scope, unless contexts would cut its buffer."""
MOST_SOURCES = 500
"""Messages that a fact rests on, as far as mere repetition adds to them: a version names them all."""
MOST_FACTS_TOGETHER = 64
"""New facts of a scope that are compared and decided in one call, at most."""
LONGEST_FACT = 2_000
"""Characters of a fact that a person edits or adds, at most: it stands in prompts, contexts and snapshots."""
LONGEST_BLOB = 60_000
"""Characters of a blob that a person writes, at most; the scope's word limit counts besides."""
LONGEST_REASON = 1_000
"""Characters of the reason for a change, at most."""
LONGEST_GUIDANCE = 4_000
"""Characters of a stream's guidance, at most: it stands in the prompts of every window."""
LONGEST_PROMPT = 16_000
"""Characters of a prompt of a stream's own, at most."""
LONGEST_SHARD_NAME = 100
"""Characters of a shard's name, at most."""
MOST_RETENTION_DAYS = 36_500
"""Days after which a stream's facts may expire, at most."""
MOST_ADDED_TEXTS = 500
"""Messages that one call of `add` takes, at most."""
MOST_ADDED_CHARACTERS = 1_000_000
"""Characters that one call of `add` takes, at most."""
MOST_QUERIES = 3
"""Queries of one search, at most."""
MOST_QUERY_CHARACTERS = 2_000
"""Characters of one query, at most."""
MOST_FOUND = 200
"""Facts that one search returns, at most."""
RECALLED_FACTS = 5
"""Facts that recall adds to a context, at most."""
MOST_HITS = 100
"""Facts that a gateway's request may ask for with `memory_top_k`, at most."""
MOST_LISTED = 200
"""Items on one page of a list, at most."""
MOST_READY_USERS = 1_000
"""Users of a session whose contexts lie ready in `memory_contexts`, at most: each names all of them."""
MOST_SESSION_USERS = 10_000
"""Users who write in a session, at most: messages of further users become dead letters."""


@dataclass(frozen=True, slots=True)
class ScopeLimits:
    """Limits of one scope's memory; words are counted by whitespace."""

    threshold: int
    """Reflections in the buffer at which it consolidates."""
    blob_words: int
    least: int
    """Items wanted of a window, at least and at most: reflections, or facts in those of `of_facts`."""
    most: int
    extraction_guidance: str | None = None
    consolidation_guidance: str | None = None
    extraction_model: str | None = None
    consolidation_model: str | None = None
    extraction_prompt: str | None = None
    """Own instructions in place of ours, and the same for the blob."""
    consolidation_prompt: str | None = None
    retention_days: int | None = None
    item_words: int | None = None
    """Words of one item; None: as FormationLimits says."""
    own: Stream | None = None
    """The stream that sets some of them."""
    version_line: bool = False
    """The blob's first line says its version."""
    active: bool = True
    """False: switched off, nothing of it is formed, consolidated or shown."""

    def forms(self, kind: Literal["facts", "reflections"]) -> bool:
        """Return whether facts, or reflections, are formed of the scope."""
        return self.own is None or self.own.extraction_fields in (None, "both", kind)

    def of_facts(self, most: int) -> "ScopeLimits":
        """Return the same with those of facts for its items; `most`: of a window, unless the stream says less."""
        own = self.own
        if own is None:
            return replace(self, least=0, most=most)
        least = own.min_facts or 0
        wanted = most if own.max_facts is None else min(own.max_facts, most)
        return replace(
            self,
            least=min(least, wanted),
            most=wanted,
            item_words=own.fact_word_limit or self.item_words,
            extraction_model=own.fact_model or self.extraction_model,
        )

    def until(self, said_at: datetime) -> datetime | None:
        """When a fact that was said then expires; None: never."""
        if self.retention_days is None:
            return None
        return said_at + timedelta(days=min(self.retention_days, MOST_RETENTION_DAYS))


DEFAULTS: Mapping[ScopeKind, ScopeLimits] = {
    "agent": ScopeLimits(10, 1_200, 0, 3),
    "user": ScopeLimits(4, 300, 0, 4),
    "session": ScopeLimits(4, 200, 1, 3),
    "group": ScopeLimits(6, 400, 0, 3),
    "shard": ScopeLimits(10, 600, 0, 3),
}


@dataclass(frozen=True, slots=True)
class FormationLimits:
    """Limits of all agents; EDEN_LIMITS_… sets some of them."""

    scopes: Mapping[ScopeKind, ScopeLimits]
    facts: int = 30
    """Of one window, at most."""
    fact_words: int = 30
    reflection_words: int = 35
    similar_facts: int = 5
    """Known facts that a new one is compared with, at most."""
    language: str | None = None
    """Of everything that is formed; None: as the conversation has it."""
    short_prompts: bool = False
    """Ask by the prompts for small models."""
    one_call: bool = False
    """Ask for a window's facts and reflections at once."""


STANDARD = FormationLimits(DEFAULTS)
"""The settings' defaults."""


def label_of(scope: Scope) -> str:
    """The name of a scope in prompts: `agent`, `group`, `user`, `session`, `shard:<name>`."""
    return f"shard:{scope.shard}" if scope.kind == "shard" else scope.kind


def sharing_of(
    label: str, streams: Mapping[str, Stream], mode: SharingMode, *, learns: bool = False
) -> Sharing:
    """Return how an agent, its groups (`agent`) or a shard (its label) is shared; the mode `private` always wins.

    Else the shard's stream says, else its agent's stream, else, with the mode `agents`, the agent's own document
    (`learns`).
    """
    if mode == "private":
        return "private"
    for name in dict.fromkeys((label, "agent")):
        stream = streams.get(name)
        if stream is not None and stream.sharing is not None:
            return stream.sharing
    return "team" if learns or mode == "team" else "private"


def limits_of(scope: Scope, streams: Mapping[str, Stream], limits: FormationLimits = STANDARD) -> ScopeLimits:
    """The limits of a scope; `streams` are its agent's, by label. A session's memory is always formed."""
    base, own = limits.scopes[scope.kind], streams.get(label_of(scope))
    if own is None:
        return base
    if not own.active:
        return replace(base, active=scope.kind == "session")
    least, most = _items(own, base)
    return ScopeLimits(
        threshold=own.threshold or base.threshold,
        blob_words=own.word_limit or base.blob_words,
        least=least,
        most=most,
        extraction_guidance=own.extraction_guidance,
        consolidation_guidance=own.consolidation_guidance,
        extraction_model=own.extraction_model,
        consolidation_model=own.consolidation_model,
        extraction_prompt=own.extraction_prompt,
        consolidation_prompt=own.consolidation_prompt,
        retention_days=own.retention_days,
        item_words=own.item_word_limit or base.item_words,
        version_line=bool(own.version_line),
        own=own,
    )


def _items(own: Stream, base: ScopeLimits) -> tuple[int, int]:
    """Return the least and the most reflections of a window; of a stream that sets one, the other follows."""
    least = base.least if own.min_items is None else own.min_items
    most = max(base.most, own.min_items or 0) if own.max_items is None else own.max_items
    return min(least, most), most


class SettingsGroup(BaseModel):
    """One group of settings; a name that it does not know is an error, not silence."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class LimitsSettings(SettingsGroup):
    """How much is formed, as far as it depends on the model; an agent's streams (`eden stream`) set the rest.

    What exceeds a limit is cut and counted.
    """

    facts: PositiveInt = Field(STANDARD.facts, description="most facts of one window")
    agent_blob_words: PositiveInt = Field(
        DEFAULTS["agent"].blob_words,
        description="most words of an agent's consolidated text, unless its stream says otherwise",
    )

    def formation(self) -> FormationLimits:
        """As stages take them."""
        agent = replace(DEFAULTS["agent"], blob_words=self.agent_blob_words)
        return FormationLimits({**DEFAULTS, "agent": agent}, self.facts)


_WORD = re.compile(r"\S+")
_SENTENCE_END = re.compile("[.!?\u2026\u3002\uff01\uff1f][\"')\\]\u00bb\u201d\u2019]*$")
"""Also an ellipsis and the full-width marks; closing quotes and brackets may follow."""

CHARACTERS_OF_A_WORD = 24
"""More than words of any language have on average, so that only a text without spaces meets this bound."""


def words_of(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


def cut_at_sentence(text: str, limit: int) -> str:
    """The whole sentences that fit into `limit` words (at least 1); where not even one does, its first words.

    The line structure of what stays is kept.
    """
    words = list(_WORD.finditer(text))
    if len(words) <= limit:
        return text.strip()
    for last in range(limit - 1, -1, -1):
        if _ends(text, words[last], words[last + 1]):
            return text[: words[last].end()].strip()
    return text[: words[limit - 1].end()].strip()


def fitted(text: str, limit: int) -> str:
    """One item within `limit` words, of 24 characters a word: text that has no spaces is bounded too.

    Whole sentences are kept where they fill at least half of the limit, else the first words.
    """
    short = cut_at_sentence(text, limit)
    if short != text.strip() and 2 * words_of(short) < limit:
        short = " ".join(text.split()[:limit])
    return short[: limit * CHARACTERS_OF_A_WORD].rstrip()


def _ends(text: str, word: re.Match[str], following: re.Match[str]) -> bool:
    """Whether a sentence, or a line, ends with this word."""
    return bool(_SENTENCE_END.search(word.group())) or "\n" in text[word.end() : following.start()]
