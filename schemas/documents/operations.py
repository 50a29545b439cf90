"""The machinery's documents: outcomes, answers, positions, leases, forgotten ids, usage, budgets, keys."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, WithJsonSchema

from eden_memory.schemas.documents.base import Document
from eden_memory.schemas.events.forgetting import Forgettable, ForgottenId, Reach
from eden_memory.schemas.fields import Bytes, Count, EventId, KeyText, Moment, Ordinal, Part, Usd
from eden_memory.schemas.ids import ClusterTime, EntityId, Version

Opaque = Annotated[Any, WithJsonSchema({"description": "The driver's own value, kept and handed back."})]


class OutcomeRecord(Part):
    """A record ready for Kafka, byte for byte."""

    t: str
    """Topic."""
    o: Bytes
    """Ordering key."""
    k: Bytes | None
    """Key."""
    v: Bytes | None
    """Value."""
    h: tuple[tuple[str, Bytes], ...]
    """Headers."""
    erased: bool = False
    """Something that was forgotten stood in the value."""
    unpublished: bool = False
    """Not published any more: what it said is forgotten, and nobody counts on it."""


class GivenUp(Part):
    """Why a record became a dead letter."""

    member: str
    """As its stage knows it: the event's id, or place and hash of a record that cannot be read."""
    reason: str
    error: str
    trace: str = ""
    attempts: Ordinal
    at: Moment


class Outcome(Document):
    """One decision of a stage: stored once, before it is published."""

    COLLECTION: ClassVar[str] = "outcomes"

    id: str = Field(alias="_id")
    """The decision key."""
    stage: str
    members: tuple[str, ...]
    """`<stage>:<ce_id>` of every input event decided together; unique."""
    writes: tuple[str, ...] = ()
    """Entity versions that it creates (`fact:ID@5`); unique."""
    kinds: tuple[str, ...]
    """Names of the events; they stay when the records are removed."""
    retry_of: str | None = None
    """The member that a dead letter was given up as, where this decides the letter sent again."""
    record_count: Count | None = None
    """How many records there were, once they are removed."""
    records: tuple[OutcomeRecord, ...] | None = None
    """Missing once every consumer is past them: only the keys stay."""
    parts: tuple[str, ...] = ()
    """The documents that hold its further records, in order, where one could not hold them all."""
    topic: str
    """With `partition` and `offset`: how far the stage's group must have committed to be past its input."""
    partition: Count
    offset: Count
    at: Moment
    dead: str | None = None
    """Why the input was given up, if it was."""
    letters: tuple[GivenUp, ...] = ()
    """Those of its members that are dead letters; they go with the records."""


class Answer(Document):
    """A model's answer, kept the moment it arrived under the hash of what was asked."""

    COLLECTION: ClassVar[str] = "answers"

    id: Annotated[str, Field(alias="_id", pattern=r"^[0-9a-f]{64}$")]
    """SHA-256 of model, parameters and prompt."""
    call_id: KeyText
    operation: Literal["chat", "embeddings"]
    provider: str | None = None
    model: str
    response_model: str | None = None
    """As the provider named it."""
    prompt: str | None = None
    unit: str | None = None
    """The question that it answers, `<stage>:<decision>`: how it is found again after a crash."""
    shown: tuple[str, ...] = ()
    """Ids behind the numbers of the prompt, in order."""
    text: str | None = None
    vectors: tuple[Bytes, ...] = ()
    input_tokens: Count = 0
    cached_tokens: Count = 0
    output_tokens: Count = 0
    reasoning_tokens: Count = 0
    cost_usd: Usd | None = None
    """Null where the price is unknown. Of one text among several embedded together: its share."""
    requests: Count = 1
    """0 where the answer is part of a request that another unit's record counts."""
    invalid: str | None = None
    """Why it was judged invalid; such an answer is not used again."""
    seconds: Annotated[float, Field(ge=0)] = 0.0
    answered_at: Moment


class RereadResult(Part):
    """What came of reading messages again with a corrected field mapping."""

    id: str
    """Of the inbox document that asked, typed."""
    read: Count
    """Messages that were read."""
    changed: Count
    """Those of them with a new version."""
    accepted: Count = 0
    """Dead letters of an earlier mapping that could be read."""
    refused: Count = 0
    """Documents that this mapping cannot use either."""


class Position(Document):
    """How far a tailer has carried one source."""

    COLLECTION: ClassVar[str] = "positions"

    id: str = Field(alias="_id")
    """The source."""
    epoch: Count
    """Of the lease under which it was saved; a lower one can no longer save."""
    token: str | None = None
    version: ClusterTime | None = None
    phase: str | None = None
    page: Opaque = None
    read: Count = 0
    published: bool | None = None
    """Whether any message of the source was published; null before the first start."""
    mapping: str | None = None
    """The version of the field mapping that reads the source now."""
    reread_due: bool = False
    """The mapping has changed since everything was read with one."""
    reread: RereadResult | None = None
    """The last `eden source reread` that ended."""
    saved_at: Moment | None = None
    lists: Count = 0
    """How often lists of messages were written: an older leader's write meets the claim of a newer one."""


class MessageLists(Document):
    """Which elements of an application's document are which messages, where a document lists them.

    A long list has further rows, which hold `names` and `marks` alone.
    """

    COLLECTION: ClassVar[str] = "listed"

    id: str = Field(alias="_id")
    """The document's typed id; of a further row `/` and a number behind it."""
    names: str
    """The names of elements in their order, a line each: their typed ids, or a number and a keyed hash."""
    marks: Bytes
    """21 bytes of each element: 8 of a keyed digest (zeros: forgotten), 13 of the change that told it last."""
    version: Version | None = None
    """Of the newest change that the list holds."""
    following: Count = 0
    """The number of the next element without an id."""
    outer: Bytes = b""
    """Keyed digest of the mapped fields beside the list."""
    reads: Bytes = b""
    """Which fields the digests are of."""
    parts: tuple[Count, ...] = ()
    """The numbers of further rows, in the order of the list."""
    gone: str = ""
    """Elements that were removed, as in `names`, until that is final."""
    gone_marks: Bytes = b""
    deleted: Version | None = None
    """When nothing was left of the list; the row goes once that is final."""


class Lease(Document):
    """Who may act, until when by the server's clock."""

    COLLECTION: ClassVar[str] = "leases"

    id: str = Field(alias="_id")
    holder: str | None = None
    epoch: Count
    """One more at every change of hands."""
    until: Moment


class ForgottenMark(Document):
    """A forgotten id, as every stage looks it up."""

    COLLECTION: ClassVar[str] = "forgotten"

    id: str = Field(alias="_id")
    """`<kind>:<id>/<reach>`, the record's key."""
    kind: Forgettable
    target: ForgottenId
    reach: Reach
    version: Version | None = None
    until: Moment | None = None
    by_hand: bool = False
    """Whether someone asked for just this; such a fact is not stated anew."""
    event_id: EventId
    forgotten_at: Moment


class Erasure(Document):
    """What one Forgotten record has erased, as its receipt tells it. Ids and keyed hashes only, no text."""

    COLLECTION: ClassVar[str] = "erasures"

    id: EventId = Field(alias="_id")
    """`ce_id` of the Forgotten record."""
    kind: Forgettable
    target: ForgottenId
    asked_by: str | None = None
    forgotten_at: Moment
    messages: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    """`<fact id>@<highest version>`."""
    reflections: tuple[str, ...] = ()
    """`<reflection id>@<highest version>`."""
    blobs: tuple[str, ...] = ()
    """`<scope key>@<version>`."""
    restated: tuple[str, ...] = ()
    """Commands that state anew what is left of merged facts, or take up again what they had contradicted."""
    texts: tuple[str, ...] = ()
    """Keyed hashes of the erased texts."""
    dead_letters: tuple[str, ...] = ()
    """Ids of the dead letters that it has erased."""
    leads_to: tuple[EventId, ...] = ()
    """Forgotten records that follow from it."""


class LetterSource(Part):
    """A message, session or user that a dead letter names."""

    message_id: str = ""
    version: str = ""
    session_id: str = ""
    user_id: str | None = None
    time: Moment


class DeadLetter(Document):
    """A record that a stage gave up, whole; or a document of the application that became no record, by its id alone.

    Kept for 30 days. Forgetting erases those that name what is forgotten.
    """

    COLLECTION: ClassVar[str] = "dead_letters"

    id: str = Field(alias="_id")
    """Hash of the program and the event's id; of place and bytes of what cannot be read; of a document's `_id`."""
    program: str
    """The stage or `tailer`; behind a stage of a namespace, the namespace's name."""
    stage: str
    state: Literal["dead", "asked", "published", "dropped"] = "dead"
    """`asked`: its stage is to try it again. Once it is published or dropped, it holds no value any more."""
    reason: str
    error: str
    """The type of the error that ended it."""
    trace: str = ""
    attempts: Ordinal = 1
    retries: Count = 0
    """How often it was asked to be tried again."""
    at: Moment
    """When it was given up, the last time."""
    topic: str
    """Where its record stood, or was to be published; with its prefix."""
    partition: Count | None = None
    """Null: it stood in no topic."""
    offset: Count | None = None
    member: str | None = None
    """`<stage>:<ce_id>`, where the record names an event."""
    key: Bytes | None = None
    value: Bytes | None = None
    headers: tuple[tuple[str, Bytes | None], ...] = ()
    cut: Count | None = None
    """How many bytes the value had, where not all of them are kept: it cannot be tried again."""
    collection: str | None = None
    """Of the tailer's: the collection of the document."""
    version: str | None = None
    """Of the tailer's: the document's version, or the event's id of a record that Kafka refused."""
    named: tuple[str, ...] | None = None
    """`<kind>:<id>` of everything whose forgetting erases it; empty: it cannot be read; null: it holds no text."""
    sources: tuple[LetterSource, ...] = ()
    since: Moment | None = None
    """When it was first stored, by the server's clock; 30 days later it is removed."""


class LoweredTopic(Document):
    """A topic's settings before `eden forget --compact` lowered them; they are restored from here after a kill."""

    COLLECTION: ClassVar[str] = "lowered_topics"

    id: str = Field(alias="_id")
    """The topic, with its prefix."""
    settings: dict[str, str | None]
    """Null: the topic had none of its own, and the broker's counted."""
    lowered_at: Moment


class UsageTotal(Document):
    """Tokens and cost of one day, agent, user, stage and model."""

    COLLECTION: ClassVar[str] = "usage"

    id: str = Field(alias="_id")
    namespace: str
    day: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    """In UTC."""
    agent_id: EntityId | None = None
    user_id: EntityId | None = None
    stage: str
    model: str
    calls: Count
    failed_calls: Count = 0
    input_tokens: Count
    cached_tokens: Count = 0
    output_tokens: Count
    cost_usd: Usd
    """Of the calls whose price is known."""
    unpriced_calls: Count = 0
    """Calls that were charged for, at a price that is not known."""


class CountedCall(Document):
    """A call of a model that is in the totals: counted once, however often its record comes."""

    COLLECTION: ClassVar[str] = "calls"

    id: KeyText = Field(alias="_id")
    namespace: str
    agent_id: EntityId | None = None
    user_id: EntityId | None = None
    session_id: EntityId | None = None
    formation_id: KeyText | None = None
    scope: str | None = None
    stage: str
    operation: Literal["chat", "embeddings"]
    provider: str
    model: str
    prompt: str | None = None
    cause: EventId | None = None
    attempt: Ordinal = 1
    repair: Count = 0
    requests: Count = 1
    items: Count = 1
    outcome: str
    input_tokens: Count = 0
    cached_tokens: Count = 0
    output_tokens: Count = 0
    cost_usd: Usd | None = None
    """Null where the price is unknown."""
    started_at: Moment
    seconds: Annotated[float, Field(ge=0)] = 0.0
    erase_at: Moment
    """Longer than its record can come again; then the document goes, the totals stay."""


class UsageState(Document):
    """How far usage is. Every count, and every adding up of a budget, moves it on: neither can miss the other."""

    COLLECTION: ClassVar[str] = "usage_state"

    id: Literal["usage"] = Field("usage", alias="_id")
    calls: Count = 0
    """Counted so far."""
    counted_to: Moment | None = None
    """When the newest call among them began."""
    reckoned: Count = 0
    """How often a budget's spending was added up anew."""


class Budget(Document):
    """A limit of what formation may spend."""

    COLLECTION: ClassVar[str] = "budgets"

    id: str = Field(alias="_id")
    agent_id: EntityId | None = None
    user_id: EntityId | None = None
    per: Literal["day", "month"]
    limit_usd: Usd
    spent_usd: dict[str, Usd]
    """By period, the UTC day (`2026-01-31`) or month (`2026-01`): what was counted since the budget was set, and in
    the period in which it was set."""
    set_at: Moment | None = None
    set_by: str | None = None


class ApiKey(Document):
    """A key of our own doors; only its hash is stored."""

    COLLECTION: ClassVar[str] = "api_keys"

    id: Annotated[str, Field(alias="_id", pattern=r"^[0-9a-f]{64}$")]
    """SHA-256 of the key."""
    name: str
    agents: tuple[EntityId, ...] | None = None
    """Null: every agent."""
    users: tuple[EntityId, ...] | None = None
    """Null: every user."""
    rights: tuple[Literal["read", "write", "admin"], ...]
    requests_per_minute: Ordinal | None = None
    created_at: Moment
    last_used_at: Moment | None = None
    revoked_at: Moment | None = None


WebhookSubject = Literal["facts", "reflections", "forgotten"]


class Webhook(Document):
    """A program that is told of changes of memory by HTTP. Its secret is stored nowhere: it follows from its id and
    the installation's secret."""

    COLLECTION: ClassVar[str] = "webhooks"

    id: Annotated[str, Field(alias="_id")]
    url: str
    on: tuple[WebhookSubject, ...]
    agents: tuple[EntityId, ...] | None = None
    """Null: every agent."""
    allow_private: bool = False
    """Whether it may be at a private address, and be told without TLS."""
    created_at: Moment
    created_by: str


class WebhookNotice(Document):
    """What one webhook is told of one change, by ids. Removed three days after its receiver has taken it."""

    COLLECTION: ClassVar[str] = "webhook_notices"

    id: Annotated[str, Field(alias="_id")]
    """The `webhook-id`, the same at every attempt."""
    webhook_id: str
    type: Literal["memory.changed", "memory.forgotten"]
    kind: Literal["fact", "reflection"]
    entity_id: KeyText
    version: Count = 0
    """Of a change: it is told once so many versions are stored."""
    happened_at: Moment
    waits_since: Moment
    """When it was written down, or asked for again as a dead letter."""
    attempts: Count = 0
    """How often it was sent, or may have been."""
    due: Moment | None = None
    """When it is sent next; null: it was taken."""
    failure: str | None = None
    """Why the last attempt failed."""
    taken_at: Moment | None = None
