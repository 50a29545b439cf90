"""Every setting, typed, with its default; read once from the environment and `eden.toml`.

`EDEN_<GROUP>_<NAME>` sets one of them (`EDEN_KAFKA_BOOTSTRAP`, `EDEN_MESSAGES_COLLECTION`); the same names
stand in `eden.toml` as `[kafka] bootstrap = …`. The environment wins.
"""

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self, cast

from pydantic import (
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    PrivateAttr,
    SecretStr,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from eden_memory.limits import FormationLimits, LimitsSettings, SettingsGroup
from eden_memory.names import JSON_TEXT, Names, Placement
from eden_memory.schemas.scopes import SharedSessions, SharingMode

SPEAKERS = "+"
"""Between the fields of a document of which each holds what one speaker said."""
SPEAKER, SAID = "role", "text"
"""The fields of such a message."""
TAILER = "tailer/"
"""Begins the name of every source."""
FACTS_OF_SHORT_PROMPTS = 8
"""Of one window: a small model that lists more repeats itself."""
API_KEY = "EDEN_API_KEY"
"""Variable that holds the key of the endpoints that the settings name; followed by `_HOST` or `_HOST_PORT`
(`EDEN_API_KEY_API_EXAMPLE_ORG`), that of one endpoint, which comes first."""
RERANK_KEY = "EDEN_RERANK_KEY"
"""Variable that holds the key of a reranker's endpoint."""
OTHER_VARIABLES = (
    API_KEY,
    "EDEN_ATLAS_URI",
    "EDEN_KEY",
    "EDEN_MCP_AGENT",
    "EDEN_MCP_SESSION",
    "EDEN_MCP_USER",
    RERANK_KEY,
    "EDEN_TOML",
    "EDEN_URL",
)
"""Variables that are no settings: of single commands, keys, Compose, the TypeScript client and tests."""
SERVICE_VARIABLE = re.compile(
    r"_SERVICE_(HOST|PORT(_\w+)?)$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$", re.IGNORECASE
)
TYPED_ID = re.compile(
    r"s\..+|i\.-?\d{1,19}|o\.[0-9a-fA-F]{24}|l\.[0-9a-fA-F]{32}|u\.[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
)
"""As mongo.bson_ids reads it, which stands above the settings."""
Role = Literal["user", "assistant", "tool", "system", "other"]
Effort = Literal["none", "minimal", "low", "medium", "high"]
Remembered = Literal["off", "form", "on"]


class MongoSettings(SettingsGroup):
    """Where MongoDB is, and where memory is kept in it."""

    uri: SecretStr | None = Field(None, description="connection string; unset: the local server is used")
    database: str = Field(
        "eden", pattern=r'^[^/\\. "$\x00]{1,63}$', description="database of the memory collections"
    )
    prefix: str = Field("memory_", description="prefix of the memory collections")


class KafkaSettings(SettingsGroup):
    """Where Kafka is, how to authenticate to it, and how its topics are named."""

    bootstrap: str | None = Field(None, description="host:port,…; unset: the local server is used")
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: (
        Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"] | None
    ) = None
    sasl_username: str | None = Field(None, description="OAUTHBEARER: the client id")
    sasl_password: SecretStr | None = Field(None, description="OAUTHBEARER: the client secret")
    sasl_token_url: str | None = Field(
        None, description="OAUTHBEARER: OpenID Connect token endpoint, for client credentials"
    )
    sasl_token_scope: str | None = Field(None, description="OAUTHBEARER: scope to request from the endpoint")
    sasl_token_file: Path | None = Field(
        None,
        description="OAUTHBEARER: file of the token, read again for every connection; preferred to the endpoint",
    )
    ssl_ca_file: Path | None = None
    ssl_certificate_file: Path | None = None
    ssl_key_file: Path | None = None
    ssl_key_password: SecretStr | None = None
    topic_prefix: str = Field("", description="put before every topic's name")
    group_prefix: str = Field("eden.", description="put before every consumer group's name")
    partitions: PositiveInt | None = Field(None, description="of new topics; unset: as in topics.yaml")
    replication_factor: PositiveInt = Field(
        1, description="copies of each partition; a write waits for all but one of them"
    )

    @property
    def min_insync_replicas(self) -> int:
        """Copies that a write waits for: all but one, so that one broker may be away."""
        return max(1, self.replication_factor - 1)


class SourceSettings(SettingsGroup):
    """The application's database; `memory_inbox` stands beside its messages."""

    database: str | None = Field(None, description="unset: the same database as the memory collections")


class MessagesSettings(SettingsGroup):
    """The application's messages: collection and (dotted) paths of fields; `a::json.b` leads through a JSON text."""

    collection: str = "messages"
    list: str | None = Field(
        default=None,
        description="the list whose elements are the messages, where a document holds a whole session: paths that "
        "begin with it are read in each element, all others in its document; `question+answer`: the fields of two "
        "speakers, whose texts are the messages and whose names the roles; unset: a document is a message",
    )
    session_id: str = "session_id"
    role: str = "role"
    content: str | tuple[str, ...] = Field(
        default="content", description="a path, or a list of paths of which the first that holds text counts"
    )
    user_id: str = "user_id"
    created_at: str = Field(default="created_at", description="`_id`: the time in the ObjectId")
    roles: dict[str, Role] = Field(
        default_factory=dict[str, Role],
        description="the application's role names, mapped to ours; of a flag, `true` and `false`; of an author's id, "
        "the ids that answer; `*`: all others",
    )
    deleted: tuple[str, ...] = Field(
        default=(),
        description="what marks a message as deleted, as a JSON list: a field (`deletedAt`: it has a value that is "
        "not false or empty), or a field and its text (`t=rm`, `content=[deleted]`; `content=`: the text is gone)",
    )
    exclude: tuple[str, ...] = Field(
        default=(),
        description="what keeps a message out of memory, in the form of `deleted`, such as a system notice's `t=uj`: "
        "it never reaches Kafka; a message that did counts as deleted",
    )
    on_delete: Literal["forget", "keep"] | None = Field(
        default=None,
        description="what a deleted message means for memory; unset: forget (`eden doctor` asks if there is a TTL)",
    )
    delete_grace_seconds: float = Field(
        default=60.0,
        ge=0,
        le=3600,
        description="a deleted message's memory is hidden at once, and erased then unless it is written again",
    )
    on_edit: Literal["form", "forget"] = Field(
        default="form",
        description="what an edited text means for memory that was formed from the earlier one: it is forgotten, and "
        "the new text forms; `forget`: the new text forms nothing",
    )
    redact_secrets: bool = Field(
        default=True,
        description="keys, tokens and card numbers are replaced on the way to Kafka; the application's messages stay",
    )

    @model_validator(mode="before")
    @classmethod
    def _read_speakers(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        named = cast("dict[str, Any]", given)
        path = named.get("list")
        of_speakers = isinstance(path, str) and SPEAKERS in path
        return {"role": f"{path}.{SPEAKER}", "content": f"{path}.{SAID}", **named} if of_speakers else named

    @field_validator("content")
    @classmethod
    def _demand_paths(cls, content: str | tuple[str, ...]) -> str | tuple[str, ...]:
        paths = [content] if isinstance(content, str) else list(content)
        if not paths or not all(paths):
            raise PydanticCustomError("no_paths", "a path, or a list of at least one path")
        if any(f"{one}.".startswith(f"{other}.") for one in paths for other in paths if one is not other):
            raise PydanticCustomError("overlapping_paths", "none of the paths leads through another one")
        return content

    @model_validator(mode="after")
    def _demand_session_of_documents(self) -> Self:
        path = self.session_id
        if JSON_TEXT in path or (self.list is not None and f"{path}.".startswith(f"{self.list}.")):
            raise PydanticCustomError(
                "no_session_path",
                "session_id: a path in the document, outside of a list of messages and of JSON",
            )
        return self

    @property
    def server_reads(self) -> bool:
        """Whether MongoDB itself can read every field of a message, and each document is one."""
        paths = (self.role, self.user_id, self.created_at, *self.contents, *self.unread)
        return self.list is None and not any(JSON_TEXT in path for path in paths)

    @property
    def speakers(self) -> tuple[str, ...]:
        """The fields of several speakers in a document, in place of a list."""
        return tuple(self.list.split(SPEAKERS)) if self.list is not None and SPEAKERS in self.list else ()

    @property
    def contents(self) -> tuple[str, ...]:
        """The paths of the content, in the order in which they are looked at."""
        return (self.content,) if isinstance(self.content, str) else self.content

    @property
    def forgets(self) -> bool:
        """Whether memory forgets messages that the application deletes."""
        return self.on_delete != "keep"

    @property
    def unread(self) -> tuple[str, ...]:
        """The marks of messages that memory does not read, because they are deleted or excluded."""
        return (*self.deleted, *self.exclude)


class SessionsSettings(SettingsGroup):
    """The application's sessions: collection and field paths; unmapped, users come from the messages."""

    collection: str | None = None
    id: str = Field(
        default="_id", description="the field by which messages name the session, such as `conversationId`"
    )
    agent_id: str = "agent_id"
    users: str = Field(default="users", description="a list of ids; if you set it, also a field of one id")
    group_id: str = "group_id"
    title: str = Field(default="title", description="shown in the context, if there is one")
    memory: str = Field(default="memory", description="if false, nothing is formed from the session")
    incognito: str = Field(default="incognito", description="if true, nothing is formed from the session")
    exclude: tuple[str, ...] = Field(
        default=(),
        description="what keeps a session out of memory, as a JSON list of fields of its document (`isTemporary`: it "
        "has a value that is not false or empty): none of its messages reaches Kafka",
    )


class AgentsSettings(SettingsGroup):
    """The application's agents; unmapped, there is one, `default`."""

    default: str | None = Field(
        default=None,
        description="agent of calls that name none, or `default`: its typed id, such as `o.65f…` or `s.support`; "
        "unset: `s.default`, the agent of sessions that name none",
    )
    collection: str | None = None
    name: str = "name"
    user_memory_enabled: str = "user_memory_enabled"
    agent_memory_enabled: str = "agent_memory_enabled"
    facts: str = Field(
        default="memory_facts", description="`off`, `form` or `on`, in place of `EDEN_MEMORY_FACTS`"
    )
    reflections: str = Field(
        default="memory_reflections",
        description="`off`, `form` or `on`, in place of `EDEN_MEMORY_REFLECTIONS`",
    )

    @field_validator("default")
    @classmethod
    def _demand_typed_id(cls, default: str | None) -> str | None:
        if default is not None and not TYPED_ID.fullmatch(default):
            raise PydanticCustomError("no_typed_id", "a typed id is s.TEXT, i.NUMBER, u.UUID or o.OBJECTID")
        return default


class UsersSettings(SettingsGroup):
    """The application's users; unmapped, all are of tier 0."""

    collection: str | None = None
    name: str = "name"
    tier: str = "tier"
    memory_private: str = "memory_private"
    memory: str = Field(default="memory", description="if false, nothing is formed from the user")


class GroupsSettings(SettingsGroup):
    """The application's groups of users; unmapped, every user of a session is in the group that it names."""

    collection: str | None = None
    name: str = Field(default="name", description="shown in the context instead of the id")
    members: str = Field(
        default="members",
        description="users' ids; a group's memory is formed and shown only where all in a session are listed",
    )


class WindowsSettings(SettingsGroup):
    """When a window of a session's messages closes."""

    messages: PositiveInt = Field(default=45, description="messages that close a window")
    tokens: PositiveFloat = Field(default=1_500.0, description="weighted tokens that close a window")
    least: PositiveInt = Field(
        default=4, description="least messages of a window, unless it is stale, ended or asked for"
    )
    cold_minutes: PositiveFloat = Field(
        default=10.0, description="minutes without a message after which a session is cold"
    )
    stale_hours: NonNegativeFloat = Field(
        default=24.0,
        le=100_000,
        description="hours without a message after which one is enough for a window; 0: never",
    )


class ModelsSettings(SettingsGroup):
    """Which models do what; keys come from the providers' own environment variables, never from here.

    Wherever a model is named (here, in `memory_streams`), it may name its provider: `openai:gpt-5-mini`,
    `google:gemini-3-flash-preview`, `https://host/v1#model` (an OpenAI-compatible endpoint). `openai`, `anthropic` or
    `google` alone is that provider's default, `offline` the rules. A name without a provider is a model of
    EDEN_LLM's.
    """

    fast: str | None = Field(
        None,
        description="facts and decisions; unset: the provider's default, or the only chat model of a URL",
    )
    free: str | None = Field(None, description="reflections and consolidation of tier 0; unset: the default")
    paid: str | None = Field(
        None, description="reflections and consolidation of tier 1 and above; unset: the default"
    )
    facts: str | None = Field(None, description="for fact extraction alone; unset: `fast`")
    decisions: str | None = Field(None, description="for decisions on facts alone; unset: `fast`")
    reflections: str | None = Field(
        None, description="for reflections of all tiers; unset: `free` and `paid`"
    )
    consolidation: str | None = Field(
        None, description="for consolidation and propagation of all tiers; unset: `free` and `paid`"
    )
    embeddings: str | None = Field(None, description="model of the vectors; unset: the embedder's default")
    effort: Effort | None = Field(
        None,
        description="thinking of models that take it, endpoints included; unset: each provider's default",
    )
    timeout_seconds: PositiveFloat = Field(
        120.0,
        description="seconds for one call, and up to 15 times as many where a model is measured as slow",
    )
    at_once: PositiveInt = Field(
        64,
        description="most concurrent calls of one provider; an endpoint given as a URL begins with 2",
    )
    prompts: Literal["full", "short"] = Field(
        "full",
        description="short: prompts with fewer rules and at most 8 facts of a window, for models of about 1 to 3 "
        "billion parameters (`eden models check` says which fit)",
    )
    log_prompts: bool = Field(default=False, description="log prompts and answers, at debug level")


class MemorySettings(SettingsGroup):
    """Switches for forming and showing memory; each is independent of the others."""

    facts: Remembered = Field(
        default="on",
        description="off: facts are not formed, and no model is asked for them; form: they are formed, but neither "
        "contexts nor searches show them; on: both. An agent's document may say otherwise for its own",
    )
    reflections: Remembered = Field(
        default="on", description="the same for reflections and the texts that consolidate them"
    )
    dedup: bool = Field(default=True, description="new facts are compared with what is known")
    context_facts: PositiveInt = Field(default=40, description="most facts in a context")
    context_days: PositiveFloat | None = Field(
        default=None, description="greatest age of a context's facts, in days; unset: any, the newest first"
    )
    similar: float = Field(
        default=0.7,
        ge=0,
        le=1,
        description="least (1 + cosine) / 2 at which a new fact is compared with a known one",
    )
    recall: Literal["full", "words", "off"] = Field(
        default="full",
        description="how contexts and the gateway search for what a message is about: by meaning and words, by words "
        "alone (where the embedder is remote, and not to be called at each turn), or not at all",
    )
    language: str | None = Field(
        default=None,
        pattern=r"^\w[\w ()-]{0,39}$",
        description="language that models write memory in, such as German; unset: that of the conversation",
    )
    recent: bool = Field(
        default=True,
        description="show a user's messages of other sessions that are not formed yet, in contexts and searches",
    )
    demote_names: bool = Field(
        default=False,
        description="what names a participant leaves group scope too; an agent keeps only what names nobody",
    )
    sharing: SharingMode | None = Field(
        default=None,
        description="private: memory of a session with users stays with them (the one user, or the group of "
        "several), whatever agents and streams say; team: agents and their shards learn from it too, and all of "
        "their users see that; agents: only those whose document (`agent_memory_enabled: true`) or stream says so; "
        "unset: as the store says, private in a new one",
    )
    sharing_mistakes: int = Field(
        default=1,
        ge=0,
        le=60,
        description="personal statements, of the 60 that `eden models check` tries a model with, which it may share "
        "at most: a model that shares more, or was never tried, shares nothing of what users said",
    )
    shared_roles: tuple[Role, ...] = Field(
        default=("user", "assistant", "system", "other"),
        description="roles whose messages may form memory of a group, an agent or a shard; what rests on any other "
        "message, by default on a tool's output, stays with the users of its session",
    )
    shared_sessions: SharedSessions = Field(
        default="session",
        description="what a session of several users leaves beside its group's memory: session: its own memory "
        "alone; authors: also what an author says of themselves, in that user's own memory, shown only where they "
        "are alone",
    )
    propagation: bool = Field(
        default=False,
        description="a model judges which reflections of a user matter to the user's group, and which of a group to "
        "the agent; nothing personal or private goes up",
    )
    without_users: bool | None = Field(
        default=None,
        description="a session in which no user is known forms memory of the agent and the group; unset: only where "
        "users are not mapped",
    )

    @property
    def recalls_by(self) -> Literal["hybrid", "text"] | None:
        """How memory is searched for what a message is about; None: not at all."""
        if self.recall == "off":
            return None
        return "text" if self.recall == "words" else "hybrid"


class SearchSettings(SettingsGroup):
    """How facts are searched."""

    adapter: Literal["auto", "atlas", "plain"] = Field(
        default="auto",
        description="who searches: Atlas, or this process; auto: Atlas if both of its indexes are queryable",
    )
    memory_bytes: PositiveInt = Field(
        default=1_000_000_000,
        description="plain: bytes for cached scopes; the least recently used leave first",
    )
    unrelated: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="(1 + cosine) / 2 of unrelated texts; unset: by the embedding model",
    )
    reranker: str | None = Field(
        default=None,
        description="folder of an ONNX cross-encoder (model.onnx, tokenizer.json), or address of a reranker's "
        "endpoint, `https://host/rerank#model` if it is to be asked for a model; unset: none",
    )


class TailerSettings(SettingsGroup):
    """The change-stream tailer."""

    backfill_since: str | None = Field(
        None, description="ISO date: older messages are not read at the first start"
    )
    lease_seconds: PositiveFloat = Field(
        6.0, description="seconds of silence after which a leader is replaced"
    )
    commit_seconds: PositiveFloat = Field(5.0, description="time between two saves of the stream position")
    watermark_seconds: PositiveFloat = Field(
        10.0, description="time between two Watermark records of a partition"
    )
    batch_messages: PositiveInt = Field(4_000, description="most change events of one request")
    text_limit: PositiveInt = Field(
        8_000, description="longest text of a message; longer ones keep head and tail"
    )


class HttpSettings(SettingsGroup):
    """`/livez`, `/readyz` and `/metrics` of a process."""

    host: str = "127.0.0.1"
    port: int | None = Field(None, ge=1, le=65_535, description="unset: not served")


class ServeSettings(SettingsGroup):
    """The doors of `eden serve`: HTTP API, inspector, gateway and MCP."""

    host: str = Field("127.0.0.1", description="an address other than loopback requires an API key")
    port: int = Field(8_787, ge=0, le=65_535)
    hosts: tuple[str, ...] = Field((), description="further host names that may be used without a key")
    require_key: bool = Field(default=False, description="require a key on loopback, too")
    cors_origins: tuple[str, ...] = Field(
        (), description="origins whose pages may send requests; none: CORS is off"
    )
    requests_per_minute: PositiveInt | None = Field(
        None, description="of a caller whose key sets no limit of its own; unset: no limit"
    )
    subscriptions: PositiveInt = Field(16, description="most open event streams of one caller")
    heartbeat_seconds: PositiveFloat = Field(15.0, description="longest silence of an event stream")


class OtelSettings(SettingsGroup):
    """Traces and metrics over OTLP (docs/operations.md); needs the extra `otel`."""

    endpoint: str | None = Field(
        None,
        pattern=r"^https?://",
        description="base URL of a collector that accepts OTLP over HTTP, such as http://localhost:4318; unset: off",
    )
    share: float = Field(1.0, ge=0, le=1, description="share of the traces to export, chosen by trace id")


class GatewaySettings(SettingsGroup):
    """The gateway for OpenAI's and Anthropic's chat APIs (docs/gateway.md)."""

    upstream: str | None = Field(
        None,
        description="base URL of the provider, such as https://api.openai.com/v1; unset: chats are refused",
    )
    single_user: str | None = Field(
        None, description="user of requests that name none, where no key is needed"
    )
    default_id: str | None = Field(
        None,
        min_length=1,
        description="`memory_id` of requests that name neither one nor a user, such as `default`; unset: such chats "
        "have no memory",
    )
    memory_seconds: PositiveFloat = Field(
        1.0, description="longest wait of a chat for memory; then it is sent without it"
    )
    placement: Literal["split", "start"] = Field(
        "split",
        description="split: puts what changes before the last user turn; start: puts all at the start",
    )
    store: bool = Field(default=True, description="store both turns, through `memory_inbox`")
    memory_hits: bool = Field(
        default=True,
        description="tell in the answer which facts were found, where the request has a `memory_*` field",
    )
    create_sessions: bool = Field(
        default=False, description="create documents of mapped sessions, and add users to them"
    )


class RunSettings(SettingsGroup):
    """Limits that a process sets for its stages."""

    at_once: PositiveInt = Field(
        400, description="most handlers that run at once in a process, over all stages"
    )
    drain_seconds: PositiveFloat = Field(
        30.0, description="time that running handlers have to end after SIGTERM"
    )
    start_seconds: PositiveFloat = Field(60.0, description="seconds to wait for servers at the start")


class RetentionSettings(SettingsGroup):
    """How long paid answers and decisions are kept; both stay for 7 days at least."""

    answer_days: PositiveFloat = Field(
        90.0, description="days for which a model's answer is stored, so that the same question costs nothing"
    )


class ReceiptsSettings(SettingsGroup):
    """Receipts of what was forgotten."""

    key: Path = Field(
        Path(".eden/receipts.key"),
        description="file of the key that signs receipts; `eden setup` creates it, readable by its owner only",
    )


class LocalSettings(SettingsGroup):
    """The local servers."""

    folder: Path = Field(Path(".eden"), description="data, logs and state of the local servers")


class Settings(BaseSettings):
    """All groups."""

    model_config = SettingsConfigDict(
        env_prefix="EDEN_",
        env_nested_delimiter="_",
        env_nested_max_split=1,
        env_ignore_empty=True,
        toml_file="eden.toml",
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    mongodb: MongoSettings = MongoSettings()  # pyright: ignore[reportCallIssue]
    kafka: KafkaSettings = KafkaSettings()  # pyright: ignore[reportCallIssue]
    source: SourceSettings = SourceSettings()  # pyright: ignore[reportCallIssue]
    messages: MessagesSettings = MessagesSettings()
    sessions: SessionsSettings = SessionsSettings()
    agents: AgentsSettings = AgentsSettings()
    users: UsersSettings = UsersSettings()
    groups: GroupsSettings = GroupsSettings()
    windows: WindowsSettings = WindowsSettings()
    llm: str = "offline"
    """`offline` (rules, no model), `openai`, `anthropic`, `google`, or the URL of a compatible endpoint."""
    embedder: str | None = None
    """`local`, `multilingual`, `openai`, `google` or a URL; unset: local, or the provider of EDEN_LLM."""
    formation_calls: Literal["two", "one"] = "two"
    """`one`: a window's facts and reflections are asked for at once; the prompts of EDEN_MODELS_PROMPTS=full only."""
    models: ModelsSettings = ModelsSettings()  # pyright: ignore[reportCallIssue]
    memory: MemorySettings = MemorySettings()
    limits: LimitsSettings = LimitsSettings()  # pyright: ignore[reportCallIssue]
    search: SearchSettings = SearchSettings()
    http: HttpSettings = HttpSettings()  # pyright: ignore[reportCallIssue]
    serve: ServeSettings = ServeSettings()  # pyright: ignore[reportCallIssue]
    otel: OtelSettings = OtelSettings()  # pyright: ignore[reportCallIssue]
    gateway: GatewaySettings = GatewaySettings()  # pyright: ignore[reportCallIssue]
    run: RunSettings = RunSettings()  # pyright: ignore[reportCallIssue]
    tailer: TailerSettings = TailerSettings()  # pyright: ignore[reportCallIssue]
    retention: RetentionSettings = RetentionSettings()  # pyright: ignore[reportCallIssue]
    receipts: ReceiptsSettings = ReceiptsSettings()  # pyright: ignore[reportCallIssue]
    local: LocalSettings = LocalSettings()  # pyright: ignore[reportCallIssue]

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments first, then the environment, then `eden.toml`."""
        del dotenv_settings, file_secret_settings
        if isinstance(env_settings, EnvSettingsSource):
            given = env_settings.env_vars.items()
            env_settings.env_vars = {
                name: value for name, value in given if not _is_of_a_service(name, value)
            }
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)

    _placement: Placement = PrivateAttr(default_factory=Placement)

    @model_validator(mode="after")
    def _refuse_unknown_variables(self) -> Self:
        """Refuse variables that look like settings: of a misspelt group, pydantic says nothing."""
        known = {*variables(), *OTHER_VARIABLES}
        others = (f"{API_KEY}_", "EDEN_TEST_")
        unknown = [
            name
            for name, value in os.environ.items()
            if value
            and name.startswith("EDEN_")
            and not _is_of_a_service(name, value)
            and name.upper() not in known
            and not name.startswith(others)
        ]
        if unknown:
            names = {"names": ", ".join(sorted(unknown))}
            raise PydanticCustomError("unknown_variables", "not known in the environment: {names}", names)
        return self

    def placed(self, placement: Placement) -> Self:
        """The same settings for another namespace."""
        settings = self.model_copy()
        settings._placement = placement
        return settings

    @property
    def placement(self) -> Placement:
        """The namespace; unless `placed`, the one that the installation began with."""
        return self._placement

    @property
    def formation_limits(self) -> FormationLimits:
        """Limits that stages apply, the language of memory, and which prompts they ask by."""
        limits = replace(self.limits.formation(), language=self.memory.language)
        if self.models.prompts == "full":
            return replace(limits, one_call=self.formation_calls == "one")
        return replace(limits, facts=min(limits.facts, FACTS_OF_SHORT_PROMPTS), short_prompts=True)

    @property
    def names(self) -> Names:
        """Of the memory collections."""
        return self._placement.names(self.mongodb.prefix)

    @property
    def source_name(self) -> str:
        """Names the source: in `ce_source`, the lease, the position and the transactional id."""
        return f"{TAILER}{self.source_database}.{self.messages.collection}"

    @property
    def source_database(self) -> str:
        """The database that holds the application's messages and `memory_inbox`."""
        return self.source.database or self.mongodb.database


def _is_of_a_service(name: str, value: str | None) -> bool:
    """Tell whether Kubernetes sets a variable for a Service, such as EDEN_PORT for one that is called `eden`."""
    if name.upper().endswith("_PORT") and (value or "").startswith(("tcp://", "udp://", "sctp://")):
        return True
    return SERVICE_VARIABLE.search(name) is not None


def groups() -> dict[str, type[SettingsGroup]]:
    """Return the groups of settings by their names."""
    kinds = {name: field.annotation for name, field in Settings.model_fields.items()}
    return {
        name: kind
        for name, kind in kinds.items()
        if isinstance(kind, type) and issubclass(kind, SettingsGroup)
    }


def variables() -> set[str]:
    """Return the names of all settings, and of whole groups (as JSON), in the environment."""
    names = set(Settings.model_fields)
    names |= {f"{name}_{field}" for name, kind in groups().items() for field in kind.model_fields}
    return {f"EDEN_{name.upper()}" for name in names}
