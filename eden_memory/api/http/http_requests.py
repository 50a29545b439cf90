"""Parameters and bodies of HTTP requests: closed models, so that no unknown field or query operator gets in."""

from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from eden_memory.constants import LONGEST_BLOB, LONGEST_FACT, MOST_QUERIES, MOST_QUERY_CHARACTERS
from eden_memory.memory.browsing_store import FactOrder
from eden_memory.schemas.events.forgetting import Forgettable
from eden_memory.schemas.scopes import ScopeKind, Sharing
from eden_memory.search.search_requests import FactScope, Kind, SearchedKind, SearchSort
from eden_memory.unpoison.attack_rules import CauseKind

IdText = Annotated[str, Field(min_length=1, max_length=1_024, examples=["s.ada"])]
Text = Annotated[str, Field(min_length=1, max_length=100_000)]
Reason = Annotated[str | None, Field(max_length=1_000)]
Cursor = Annotated[str | None, Field(max_length=4_096)]


def _in_path(description: str, example: str) -> Any:
    return Path(
        pattern=r"^[A-Za-z0-9_.~%:/-]+$", max_length=4_096, description=description, examples=[example]
    )


FactId = Annotated[str, _in_path("As lists and searches give it; percent-encoded in the path.", "0b4e9c1d2f")]
ReflectionId = Annotated[str, _in_path("As lists give it; percent-encoded in the path.", "4f1d0c77ab")]
BlobKey = Annotated[
    str,
    _in_path(
        "The key of the blob's scope, as lists give it; percent-encoded in the path.", "user:s.support:s.ada"
    ),
]
Expected = Annotated[int | None, Field(ge=1, le=2**31)]
Positive = Annotated[int | None, Field(ge=1, le=2**31)]


class _Said(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Where(_Said):
    """The session and user whose memory is used: what the user may see in this session, or outside of any."""

    session: IdText | None = None
    """The session's id: plain text, or typed (`s.TEXT`, `i.5`, `u.UUID`, `o.OBJECTID`)."""
    user: IdText | None = None
    """The user's id, plain or typed. A key that is bound to users has to name one of them."""


class UserQuery(_Said):
    """The user who acts in the session that the path names."""

    user: IdText | None = None
    """As of all other requests."""


class Forming(UserQuery):
    """The user, and whether a window must be due."""

    if_due: bool = False
    """Only if a window is due: enough messages or tokens, or idle for long enough."""


class ContextWhere(Where):
    """The session and user of a context, and the message to recall for."""

    message: Annotated[str | None, Field(max_length=20_000)] = None
    """The user's message: what it asks of the past is searched for, and added."""


class WhyWhere(Where):
    """The session and user who ask, and the words of the memory or message to explain."""

    text: Annotated[str, Field(min_length=1, max_length=1_000)]
    """Words of a fact, a reflection or a message of the user's."""


class ListQuery(Where):
    """A page of a list, newest first."""

    scope: list[ScopeKind] | None = None
    """Only these kinds of scope; unset: all that are visible."""
    since: AwareDatetime | None = None
    """Facts that hold since this time or later (valid_from); reflections said then or later (said_at)."""
    until: AwareDatetime | None = None
    """Facts that hold since before this time; reflections said before it."""
    limit: Annotated[int, Field(ge=1, le=200)] = 50
    cursor: Cursor = None
    """Of the page before."""


class FactListing(ListQuery):
    """A page of facts."""

    active: Literal["true", "false", "all"] = "true"
    """false: only those that were retired."""
    occurred_after: AwareDatetime | None = None
    """Facts of what happened then or later, apart from when it was said."""
    occurred_before: AwareDatetime | None = None
    """Facts of what happened before then."""
    sort: FactOrder = "formed_at"
    """occurred_at: only facts that say when something happened, the last first."""


class ReflectionListing(ListQuery):
    """A page of reflections."""

    absorbed: bool | None = None
    """Whether a blob has taken them in; false: those that wait for it, without retired ones; unset: all."""


class BlobListing(Where):
    """The blobs of some scopes."""

    scope: list[ScopeKind] | None = None
    """Only these kinds of scope; unset: all that are visible."""


class _Body(_Said):
    model_config = ConfigDict(strict=True)


class Search(_Body):
    """A search."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"queries": ["Where does Ada work?"], "top_k": 5}]}
    )

    queries: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=MOST_QUERY_CHARACTERS)]],
        Field(min_length=1, max_length=MOST_QUERIES),
    ]
    """Up to three questions or statements."""
    top_k: Annotated[int, Field(ge=1, le=100)] = 10
    search_type: Kind = "hybrid"
    kinds: Annotated[list[SearchedKind], Field(min_length=1)] = ["facts"]
    """`reflections`: what users prefer and want done, and what the agent recommended; ranked together with facts."""
    scopes: Annotated[list[FactScope] | None, Field(min_length=1)] = None
    """Only facts in these kinds of scope; unset: all that are visible."""
    as_of: Annotated[AwareDatetime | None, Field(strict=False)] = None
    """What was known then."""
    asked_at: Annotated[AwareDatetime | None, Field(strict=False)] = None
    """When it is asked, for times in a question ("last week"); unset: now."""
    include_retired: bool = False
    occurred_after: Annotated[AwareDatetime | None, Field(strict=False)] = None
    """Only facts of what happened then or later, apart from when it was said."""
    occurred_before: Annotated[AwareDatetime | None, Field(strict=False)] = None
    """Only facts of what happened before then."""
    sort: SearchSort = "score"
    """occurred_at: of what is found, what happened last comes first."""
    recency_weight: Annotated[float | None, Field(ge=0, le=1)] = None
    score_threshold: Annotated[float | None, Field(ge=0, le=1)] = None
    debug: bool = False
    """Time, candidates and scores of every stage, too."""


class Turn(_Body):
    """A message to remember."""

    role: Literal["user", "assistant", "tool", "system", "other"] = "user"
    content: Text
    created_at: Annotated[AwareDatetime | None, Field(strict=False)] = None


class Addition(_Body):
    """A text, or messages, to remember."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"text": "I moved to Lisbon in May."}]})

    text: Text | None = None
    messages: Annotated[list[Turn] | None, Field(min_length=1, max_length=200)] = None
    scope: Annotated[
        str | None,
        Field(
            max_length=100,
            description="whose memory it becomes, outside of sessions: user (unset, with a user) or agent "
            "(unset, without), which all of its users see",
        ),
    ] = None
    at: Annotated[AwareDatetime | None, Field(strict=False)] = None
    """When it was said, where a message does not say so itself; not in the future."""
    verbatim: bool = False
    """Each text is a fact or reflection (`kind`) as it stands, without a model; at most 2,000 characters."""
    kind: Literal["fact", "reflection"] = "fact"
    """Of verbatim texts."""

    @model_validator(mode="after")
    def _one_of_both(self) -> "Addition":
        if (self.text is None) == (self.messages is None):
            raise ValueError("give either text or messages")
        return self


class Edit(_Body):
    """Another text for a fact."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"text": "Ada lives in Lisbon.", "expected_version": 1}]}
    )

    text: Annotated[str, Field(min_length=1, max_length=2_000)]
    expected_version: Expected = None
    """Only if it still stands at this version."""
    reason: Reason = None


class Retirement(_Body):
    """Why a fact or reflection leaves search and context; its history stays."""

    expected_version: Expected = None
    reason: Reason = None


class ReflectionEdit(Edit):
    """Another text for a reflection."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"text": "Wants short answers."}]})


class Marking(_Body):
    """Whether a reflection is private."""

    private: bool = True
    """Nothing of it is propagated to a broader scope."""
    expected_version: Expected = None
    reason: Reason = None


class BlobChange(_Body):
    """Another text for a blob."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"text": "Ada likes boats.", "expected_version": 2}]}
    )

    text: Annotated[str, Field(min_length=1, max_length=LONGEST_BLOB)]
    """It keeps the pinned sentences."""
    expected_version: Annotated[int, Field(ge=0, le=2**31)]
    """The version that it was written for; 0: there is none yet."""
    reason: Reason = None


class Pin(_Body):
    """A sentence that a blob keeps, or need not keep any more."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"sentence": "Never call before nine."}]})

    sentence: Annotated[str, Field(min_length=1, max_length=LONGEST_FACT)]
    expected_version: Annotated[int | None, Field(ge=0, le=2**31)] = None
    reason: Reason = None


class StreamChange(_Body):
    """Fields of a stream to set; null unsets one, and the settings apply again."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"sharing": "team", "extraction_guidance": "Prices and quotes, with dates."}]
        }
    )

    active: bool | None = None
    """false switches the scope or shard off; what is stored of it stays."""
    sharing: Sharing | None = None
    """Of agent and shards. `team`: it also learns from sessions with users, and all of the agent's users see that."""
    propagation: bool | None = None
    """Of an agent: whether what is judged to matter to a group, or to everybody, goes up from narrower scopes."""
    extraction_guidance: str | None = None
    """Added to the prompts for facts and reflections."""
    consolidation_guidance: str | None = None
    """Added to the prompt that rewrites its blob."""
    threshold: Positive = None
    """Reflections in the buffer at which it consolidates."""
    word_limit: Positive = None
    """Words of its blob, at most."""
    item_word_limit: Positive = None
    """Words of a fact or reflection, at most."""
    min_items: Annotated[int | None, Field(ge=0)] = None
    """Reflections wanted of a window: with fewer, the model is asked once more."""
    max_items: Annotated[int | None, Field(ge=0)] = None
    """Reflections of a window, at most."""
    extraction_model: str | None = None
    """For facts and reflections; it answers for all scopes of the window."""
    consolidation_model: str | None = None
    fifo_limit: Positive = None
    """Active facts, at most."""
    max_entries: Positive = None
    """Active facts that rest on one conversation alone, at most."""
    retention_days: Positive = None
    """Days after which a fact expires."""


class Forgetting(_Body):
    """A memory or source to forget for ever."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"what": "session", "target": "s.chat-7"}]})

    what: Forgettable
    """A user is forgotten by `DELETE /v1/users/{user}`."""
    target: Annotated[str, Field(min_length=1, max_length=4_096)]
    """A message's or session's id, plain or typed; the id of a fact or reflection; `<scope key>@<version>`."""


class UndoPreviewing(_Body):
    """The cause whose effects on memory are to be undone."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"cause": "session", "target": "s.chat-7"}]})

    cause: CauseKind
    """A user, import or call takes a key with the right `admin` that is bound to no agent and no user."""
    target: Annotated[str, Field(min_length=1, max_length=4_096)]
    """The id of a message, session or user, plain or typed; the source of an import (`mem0`); a call's id."""


class Undoing(UndoPreviewing):
    """An attack to undo, as its preview has shown it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"cause": "session", "target": "s.chat-7", "preview": "5f0c2f1c9a7d4e0bb7a1c3d2e4f60718"}
            ]
        }
    )

    preview: Annotated[str, Field(min_length=1, max_length=64)]
    """The `preview` that `undo/preview` returned."""
