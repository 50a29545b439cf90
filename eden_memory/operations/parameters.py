"""The parameters of operations: type, limits and words, the same at every door.

The Python service takes what an annotation says. Doors that read text (HTTP, MCP, the command line) take what
`AtDoors` says instead, and read it into what the service takes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from eden_memory.limits import (
    LONGEST_BLOB,
    LONGEST_FACT,
    LONGEST_REASON,
    MOST_FOUND,
    MOST_LISTED,
    MOST_QUERIES,
)
from eden_memory.memory.browsing_store import FactOrder
from eden_memory.models.catalogue import shown_model
from eden_memory.mongo.ids import id_of
from eden_memory.schemas.documents import ExtractionFields
from eden_memory.schemas.scopes import ScopeKind, Sharing
from eden_memory.search.search_requests import FactScope, Kind, SearchedKind, SearchSort
from eden_memory.unpoison.attack_rules import CauseKind

UNSET: Any = object()


@dataclass(frozen=True, slots=True)
class AtDoors:
    """What a door takes for a parameter, and how that is read; `type` None: only Python has the parameter."""

    type: Any
    read: Callable[[Any], Any] | None = None
    default: Any = UNSET
    """At doors, where it is written otherwise than in Python."""


def _id(kind: str) -> AtDoors:
    return AtDoors(IdText | None, partial(_read_id, kind))


def _read_id(kind: str, text: str | None) -> Any:
    return None if text is None else id_of(text, kind)


ACTIVE: Mapping[str, bool | None] = {"true": True, "false": False, "all": None}
HINT = "plain text, or typed: s.TEXT, i.5, u.UUID, o.OBJECTID"
ANY_ID = r"^[A-Za-z0-9_.~%:/-]+$"
PYTHON_ALONE = AtDoors(None)
IdText = Annotated[str, Field(min_length=1, max_length=1_024, examples=["s.ada"])]
Cursor = Annotated[str | None, Field(max_length=4_096, description="of the previous page")]
Session = Annotated[Any, _id("session"), Field(description=f"id of the conversation, {HINT}")]
User = Annotated[
    Any, _id("user"), Field(description=f"id of the user, {HINT}; a key that is bound to users names one")
]
Message = Annotated[
    str | None,
    Field(max_length=20_000, description="the user's message: what it asks of the past is found, and added"),
]
ForceRefresh = Annotated[bool, Field(description="read memory anew, whatever this process has cached")]
Scopes = Annotated[
    Sequence[ScopeKind] | None,
    AtDoors(list[ScopeKind] | None),
    Field(min_length=1, description="only of these kinds of scope; without: of all that are visible"),
]
Queries = Annotated[
    Sequence[str] | str,
    AtDoors(list[Annotated[str, Field(min_length=1, max_length=2_000)]]),
    Field(
        min_length=1,
        max_length=MOST_QUERIES,
        validation_alias=AliasChoices("queries", "query"),
        description="1 to 3 different phrasings or parts of one question; also named `query`, and one may be a text",
    ),
    BeforeValidator(lambda given: [given] if isinstance(given, str) else given),
]
SearchedScopes = Annotated[
    Sequence[ScopeKind] | None,
    AtDoors(list[FactScope] | None),
    Field(
        min_length=1,
        description="only what is known of the user, their group, the agent's work or a shard of it; without: all",
    ),
]
TopK = Annotated[
    int,
    AtDoors(Annotated[int, Field(ge=1, le=MOST_FOUND)]),
    Field(description="facts at most, for each query"),
]
SearchType = Annotated[
    Kind,
    Field(
        description="hybrid by meaning and words (the best for most questions), semantic by meaning, text by words"
    ),
]
Kinds = Annotated[
    Sequence[SearchedKind],
    AtDoors(list[SearchedKind], default=["facts"]),
    Field(
        min_length=1,
        description="facts, reflections or both; reflections hold what the user prefers and wants done, what was "
        "learned, and what was recommended",
    ),
]
Debug = Annotated[
    bool,
    AtDoors(bool, default=False),
    Field(description="with time and candidates of every stage, and the scores that each gave to a fact"),
]
IncludeRetired = Annotated[bool, Field(description="retired facts, too")]
RecencyWeight = Annotated[
    float | None,
    Field(ge=0, le=1, description="how much of the score is freshness; without: not at all"),
]
Threshold = Annotated[
    float | None, Field(ge=0, le=1, description="facts with a lower score are left out; 1: the best of all")
]


def _time(description: str) -> Any:
    return Field(strict=False, description=description)


AsOf = Annotated[datetime | None, _time("what was known then (ISO 8601; UTC unless it says)")]
AskedAt = Annotated[
    datetime | None, _time('when it is asked, for "last week" in a question; with its zone; without: now')
]
OccurredAfter = Annotated[
    datetime | None, _time("only of what happened then or later, not of when it was said (ISO 8601)")
]
OccurredBefore = Annotated[datetime | None, _time("only of what happened before then (ISO 8601)")]
Since = Annotated[
    datetime | None, _time("facts that hold since then or later (valid_from); reflections said since then")
]
Until = Annotated[datetime | None, _time("facts that hold since before then; reflections said before it")]
At = Annotated[
    Any,
    AtDoors(datetime | None),
    _time("when it was said, if not now, where a message does not say so itself; UTC unless it says"),
]
FoundOrder = Annotated[
    SearchSort, Field(description="occurred_at: what happened last comes first, of what is found")
]
ListOrder = Annotated[
    FactOrder,
    Field(description="newest first by this time; occurred_at: only facts that say when something happened"),
]
Active = Annotated[
    bool | None,
    AtDoors(Literal["true", "false", "all"], ACTIVE.__getitem__, "true"),
    Field(description="false: only retired facts; all: both"),
]
Absorbed = Annotated[
    bool | None,
    Field(description="whether a blob has taken them in; false: those that wait for it, no retired ones"),
]
Limit = Annotated[int, AtDoors(Annotated[int, Field(ge=1, le=MOST_LISTED)]), Field(description="of a page")]


def _id_text(description: str, example: str, pattern: str | None = None) -> Any:
    return Field(min_length=1, max_length=4_096, pattern=pattern, description=description, examples=[example])


_memory_id = partial(_id_text, pattern=ANY_ID)


FactId = Annotated[str, _memory_id("id of a fact, as lists and searches give it", "0b4e9c1d2f")]
DuplicateId = Annotated[
    str, _memory_id("id of a fact of the same scope that says the same, and retires", "77a0c4e2b1")
]
ReflectionId = Annotated[str, _memory_id("id of a reflection, as lists give it", "4f1d0c77ab")]
MemoryId = Annotated[
    str, _memory_id("id of a fact or reflection, as lists and searches give it", "0b4e9c1d2f")
]
MemoryOrBlob = Annotated[
    str, _memory_id("id of a fact or reflection; of a blob the key of its scope", "user:s.support:s.ada")
]
ScopeKey = Annotated[
    str, _memory_id("key of the blob's scope, as lists of blobs give it", "user:s.support:s.ada")
]
Words = Annotated[
    str,
    Field(min_length=1, max_length=1_000, description="words of a memory, or of a message of the user's"),
]
NewText = Annotated[
    str,
    AtDoors(Annotated[str, Field(min_length=1, max_length=LONGEST_BLOB)]),
    Field(description="the whole text that it is to have; a blob's keeps its pinned sentences"),
]
Sentence = Annotated[
    str,
    AtDoors(Annotated[str, Field(min_length=1, max_length=LONGEST_FACT)]),
    Field(description="one sentence, word for word"),
]
Private = Annotated[bool, Field(description="false takes the mark away")]
Expected = Annotated[
    int | None,
    Field(
        ge=0, le=2**31, description="only if this version still stands; a blob needs it (0: there is none)"
    ),
]
Reason = Annotated[
    str | None,
    AtDoors(Annotated[str | None, Field(max_length=LONGEST_REASON)]),
    Field(description="why, for the history"),
]
Text = Annotated[str, Field(min_length=1, max_length=100_000, description="what to remember")]
AddedScope = Annotated[
    str | None,
    Field(
        max_length=100,
        description="whose memory it becomes, outside of sessions: user (without: so, with a user), or agent or "
        "shard:NAME, then every user of the agent sees it",
    ),
]
Verbatim = Annotated[
    bool,
    Field(
        description="each text is one fact or reflection word for word, without a model; up to 2,000 characters"
    ),
]
VerbatimKind = Literal["fact", "reflection"]
AddedKind = Annotated[VerbatimKind, Field(description="of a verbatim text: which memory it is")]
IfDue = Annotated[
    bool, Field(description="only if a window is due: enough messages or tokens, or idle for long enough")
]
Move = Annotated[bool, Field(description="give it to the one user who said it; else it is only retired")]
Target = Annotated[
    str,
    _id_text(
        "id of a message or session, plain or typed; id of a fact or reflection; of a blob `<scope key>@<version>`",
        "s.chat-7",
    ),
]
Cause = Annotated[
    CauseKind,
    Field(
        description="what planted the memory; user, import, call: only for keys that administer everything"
    ),
]
CauseTarget = Annotated[
    str,
    _id_text("id of the message, session or user; the source of an import (`mem0`); a call's id", "s.chat-7"),
]
Preview = Annotated[
    str, Field(min_length=1, max_length=64, description="`preview` of the answer that showed what changes")
]
RequestId = Annotated[str, _id_text("what a request to forget or undo has answered", "o.65f0")]
InTopics = Annotated[
    bool, Field(description="look in Kafka's topics, too; false: in MongoDB's collections alone")
]
ScopeLabel = Annotated[
    str,
    Field(
        min_length=1,
        max_length=200,
        description="`agent`, `group`, `user`, `session`, or `shard:NAME`",
        examples=["shard:pricing"],
    ),
]
Positive = Annotated[int | None, Field(ge=1, le=2**31)]


class _Closed(BaseModel):
    """No unknown field or query operator gets in."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


class Turn(_Closed):
    """A message to remember."""

    role: Literal["user", "assistant", "tool", "system", "other"] = "user"
    content: Text
    created_at: Annotated[datetime | None, Field(strict=False)] = None


class StreamFields(_Closed):
    """How a scope or shard is formed; null: by the settings."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"sharing": "team", "extraction_guidance": "Prices and quotes, with dates."}]
        }
    )

    active: bool | None = None
    """false switches the scope or shard off: nothing of it is formed or shown; what is stored stays."""
    sharing: Sharing | None = None
    """Of agent and shards. `team`: it also learns from sessions with users, and all of the agent's users see that."""
    propagation: bool | None = None
    """Of an agent: whether what is judged to matter to a group, or to everybody, goes up from narrower scopes."""
    propagation_from: Positive = None
    """Of an agent: how many users, or groups, must show the same before it goes up; null: one."""
    search_tool: bool | None = None
    """Of an agent. false: its model is not offered the tool that searches memory, and may not search."""
    extraction_guidance: str | None = None
    """Added to the prompts for facts and reflections."""
    consolidation_guidance: str | None = None
    """Added to the prompt that rewrites its blob."""
    extraction_prompt: str | None = None
    """Instructions in place of ours, in a call of its own. Names {words}; may name {kind}, {scope}, {least}, {most},
    {language}."""
    consolidation_prompt: str | None = None
    """The same for its blob. Names {words}; may name {scope}, {language}."""
    extraction_fields: ExtractionFields | None = None
    """What is formed: facts, reflections or both."""
    threshold: Positive = None
    """Reflections in the buffer at which it consolidates."""
    version_line: bool | None = None
    """Whether the first line of its blob says its version."""
    word_limit: Positive = None
    """Words of its blob, at most."""
    item_word_limit: Positive = None
    """Words of a fact or reflection, at most."""
    fact_word_limit: Positive = None
    """Words of a fact, in place of `item_word_limit`."""
    min_items: Annotated[int | None, Field(ge=0)] = None
    """Reflections wanted of a window: with fewer, the model is asked once more."""
    max_items: Annotated[int | None, Field(ge=0)] = None
    """Reflections of a window, at most."""
    min_facts: Annotated[int | None, Field(ge=0)] = None
    """Facts wanted of a window: with fewer, the model is asked once more."""
    max_facts: Annotated[int | None, Field(ge=0)] = None
    """Facts of a window, at most."""
    extraction_model: str | None = None
    """For facts and reflections; it answers for all scopes of the window. Of an endpoint only host and model show."""
    fact_model: str | None = None
    """For facts, in place of `extraction_model`."""
    consolidation_model: str | None = None
    """Of an endpoint only host and model show."""
    fifo_limit: Positive = None
    """Active facts, at most."""
    max_entries: Positive = None
    """Active facts that rest on one conversation alone, at most."""
    retention_days: Positive = None
    """Days after which a fact expires."""


class StreamView(StreamFields):
    """A stream: how a scope or shard of an agent is formed."""

    model_config = ConfigDict(extra="ignore", strict=False, from_attributes=True, json_schema_extra=None)

    agent_id: str
    scope: ScopeKind
    shard: str | None

    @field_validator("extraction_model", "fact_model", "consolidation_model")
    @classmethod
    def _shown(cls, named: str | None) -> str | None:
        return None if named is None else shown_model(named)


class Requested(BaseModel):
    """A request was written down: it is carried out in its place among the chat's messages."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    request_id: str
    """The typed id of the inbox's document; for a receipt."""


class ContextText(BaseModel):
    """What is known where the conversation stands."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    context: str
    """XML for the prompt; empty where nothing is remembered."""
