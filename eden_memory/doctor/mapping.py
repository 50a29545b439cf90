"""The field mapping, tried on the application's own newest documents."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.doctor.finding import Finding
from eden_memory.domain.source.message_fields import Unusable, getter
from eden_memory.domain.source.message_mapping import ROLES, MessageMapping
from eden_memory.mongo.source.change_stream import PLAIN
from eden_memory.settings import MessagesSettings, Settings
from eden_memory.source_tailing import message_mapping

SAMPLE = 200
ANY_VERSION, ANY_TIME = "0" * 16, b"1970-01-01T00:00:00.000Z"


async def field_mapping(database: AsyncDatabase[dict[str, Any]], settings: Settings) -> list[Finding]:
    """Of the newest documents: how many become messages, why the others do not, which roles are unknown."""
    collection = database.get_collection(settings.messages.collection, codec_options=PLAIN)
    documents = await collection.find(sort=[("_id", -1)], limit=SAMPLE).to_list()
    return judge_documents(documents, settings)


def judge_documents(documents: list[dict[str, Any]], settings: Settings) -> list[Finding]:
    """Of documents of the messages collection."""
    if not documents:
        return [
            Finding("field mapping", "warn", "no documents to try it on", "Write a message and ask again.")
        ]
    return [_usable(documents, settings), _texts(documents, settings), _roles(documents, settings.messages)]


def _usable(documents: list[dict[str, Any]], settings: Settings) -> Finding:
    reasons = Counter(filter(None, (_why_not(message_mapping(settings), one) for one in documents)))
    usable = len(documents) - reasons.total()
    what = f"{usable} of the newest {len(documents)} documents are messages"
    if not reasons:
        return Finding("field mapping", "ok", what)
    what += "".join(f"; {count}: {reason}" for reason, count in reasons.most_common(3))
    hint = "Say where the fields are: EDEN_MESSAGES_SESSION_ID, _ROLE, _CONTENT, _USER_ID, _CREATED_AT."
    return Finding("field mapping", "warn" if usable * 10 >= len(documents) * 9 else "fail", what, hint)


def _texts(documents: list[dict[str, Any]], settings: Settings) -> Finding:
    """A wrong path for content breaks nothing and remembers nothing, so it is looked at of its own."""
    mapping, dated = message_mapping(settings), getter(settings.messages.created_at)
    empty = sum(not _has_text(mapping, one) for one in documents)
    undated = sum(dated(one) is None for one in documents)
    what = f"{len(documents) - empty} have text, {len(documents) - undated} say when they were written"
    if empty * 2 > len(documents):
        hint = f"Is the text really in `{settings.messages.content}`? Set EDEN_MESSAGES_CONTENT."
        return Finding("message texts", "fail" if empty == len(documents) else "warn", what, hint)
    if undated:
        hint = f"Is the time really in `{settings.messages.created_at}`? Set EDEN_MESSAGES_CREATED_AT."
        return Finding("message texts", "warn", what, hint)
    return Finding("message texts", "ok", what)


def _roles(documents: Iterable[Mapping[str, Any]], messages: MessagesSettings) -> Finding:
    known = {*ROLES, *messages.roles}
    found = Counter(str(getter(messages.role)(one)) for one in documents)
    unknown = {name: count for name, count in found.items() if name not in known}
    if not unknown:
        return Finding("roles", "ok", ", ".join(f"{name} {count}" for name, count in found.most_common()))
    what = ", ".join(f"{name!r} ({count})" for name, count in unknown.items())
    example = '{"' + next(iter(unknown)) + '": "assistant"}'
    hint = f"They count as `other`, half a user's weight. Map them: EDEN_MESSAGES_ROLES='{example}'."
    return Finding("roles", "warn", f"unknown: {what}", hint)


def _why_not(mapping: MessageMapping, document: dict[str, Any]) -> str | None:
    try:
        mapping.record(document, ANY_VERSION, ANY_TIME, "stream")
    except Unusable as reason:
        return str(reason)
    return None


def _has_text(mapping: MessageMapping, document: dict[str, Any]) -> bool:
    try:
        return mapping.has_text(document)
    except Unusable:
        return False
