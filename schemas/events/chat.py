"""The records of `chat.messages`: what the tailer read from the application's database."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

from pydantic import Field

from eden_memory.schemas.events.base import Event
from eden_memory.schemas.fields import Count, Moment
from eden_memory.schemas.ids import ClusterTime, EntityId, Version

Role = Literal["user", "assistant", "tool", "system", "other"]
AGENT_SIDE: frozenset[Role] = frozenset({"assistant", "tool", "system"})
"""Roles of those who answer the users."""
ALL_OTHERS = "*"
"""Stands for the names of roles that are not mapped."""
Origin = Literal["stream", "backfill", "merge", "added", "reread"]


def roles_of(mapped: Mapping[str, str]) -> dict[str, str]:
    """Return our role by the application's name for it; each of ours stands for itself unless it is mapped."""
    return {**{role: role for role in get_args(Role)}, **mapped}


def role_of(name: Any, roles: Mapping[str, str]) -> str:
    """Return our role for what stands in a document, by `roles_of`."""
    role = roles.get(name if type(name) is str else role_name(name))
    return role if role is not None else others_of(roles)


def others_of(roles: Mapping[str, str]) -> str:
    """Return our role for the names that are not mapped."""
    return roles.get(ALL_OTHERS, "other")


def role_name(value: Any) -> str:
    """Return the name of the role that stands in a document: a flag is `true` or `false`, a missing one `false`; a
    number or an ObjectId, where an author's id says the role, is its text.
    """
    match value:
        case str():
            return str(value)  # BSON's code is a text, too, that cannot be a key
        case True:
            return "true"
        case False | None:
            return "false"
        case float() if value.is_integer():
            return str(int(value))
        case _:  # an ObjectId is known by its time: this module knows no driver
            named = isinstance(value, int) or hasattr(value, "generation_time")
            return str(value) if named else ALL_OTHERS


def participant_of(role: str, author: str | None) -> str | None:
    """Return the user who takes part in a session by writing a message: its author, unless the agent's side wrote it.

    There the id is a bot's, a person's who answers for the agent, or that of the chat's owner.
    """
    return None if role in AGENT_SIDE else author


def rules_of(mapping: str | None) -> str:
    """Return the rules' number of a mapping's version; those of rules 1 do not say it."""
    return (mapping or "").rpartition(".")[0] or "1"


def settings_of(mapping: str | None) -> str | None:
    """Return the part of a mapping's version that the settings decide."""
    return mapping and mapping.rpartition(".")[2].partition("-")[0]


def with_detectors(mapping: str, detectors: str | None) -> str:
    """Return a mapping's version with that of the detectors of secrets, if any: behind it, because a message that no
    detector changes is the same message."""
    return mapping if detectors is None else f"{mapping}-{detectors}"


class MessageRecorded(Event):
    """A chat message as it stands since `version`; the record with the highest version counts."""

    message_id: EntityId
    session_id: EntityId
    version: Version
    role: Role
    user_id: EntityId | None
    """The id that the message bears as its author: no user of the session for assistant, tool and system."""
    text: str
    """Up to 8,000 characters; beyond that, head and tail. Empty for a message without content."""
    characters: Count
    """Length of the text before it was cut."""
    truncated: bool
    created_at: Moment | None
    """The application's own time, where it gave one."""
    edited_at: Moment | None = None
    """When its text was changed last, as far as the stream told; null for a text as it was first written."""
    origin: Origin
    """stream: as it was written; backfill: read at the first start; merge: after a lost position;
    added: a text given without a chat; reread: read again with a corrected field mapping."""
    mapping: str | None = Field(default=None, max_length=32)
    """The version of the field mapping that read it; null where none did."""
    first_id: EntityId | None = None
    """The first id of a message that was deleted and at once written again with this one."""

    @property
    def participant(self) -> str | None:
        """The user who takes part in the session by this message, if any."""
        return participant_of(self.role, self.user_id)

    def key(self) -> str:
        """The message."""
        return self.message_id

    def ordering_key(self) -> str:
        """Its session."""
        return self.session_id

    def subject(self) -> str:
        """The message."""
        return self.message_id


class _Control(Event):
    """Something asked of a session, at its place among the session's messages."""

    inbox_id: EntityId
    """The `memory_inbox` document that asked."""
    session_id: EntityId
    version: Version
    """Cluster time of the asking."""
    asked_by: str | None = Field(max_length=256)
    """Who asked, where known."""

    def key(self) -> str:
        """The inbox document."""
        return self.inbox_id

    def ordering_key(self) -> str:
        """The session."""
        return self.session_id

    def subject(self) -> str:
        """The session."""
        return self.session_id


class SessionEnded(_Control):
    """The session is over: what is pending is formed, then its memory is consolidated."""


class FormationAsked(_Control):
    """Form what is pending in the session: now, however little, or only if it is due."""

    if_due: bool
    """true: only if the messages that wait make a window by the counts, or the session is cold or stale."""


class Watermark(Event):
    """Everything up to `version` is published to this partition. Sent to the partition that it names."""

    partition: Count
    time: Moment
    version: ClusterTime
    """The same cluster time as `time`, exactly."""

    def key(self) -> str:
        """`watermark:<partition>`."""
        return f"watermark:{self.partition}"

    def ordering_key(self) -> str:
        """The partition: a watermark belongs to no session."""
        return self.key()

    def subject(self) -> str:
        """The partition."""
        return self.key()
