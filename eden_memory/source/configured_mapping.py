"""The mapping of the application's documents that the settings describe."""

from eden_memory.mongo.bson_ids import encode_id
from eden_memory.redaction import redactor_of
from eden_memory.settings import Settings
from eden_memory.source.message_mapping import FieldPaths, MessageMapping

INBOX = "inbox"


def message_paths(settings: Settings) -> FieldPaths:
    """Where a message's fields are in the application's documents."""
    fields = settings.messages
    return FieldPaths(fields.session_id, fields.role, fields.content, fields.user_id, fields.created_at)


def message_mapping(settings: Settings) -> MessageMapping:
    """The application's messages → records."""
    return MessageMapping(
        message_paths(settings),
        settings.source_name,
        encode_id,
        roles=settings.messages.roles,
        text_limit=settings.tailer.text_limit,
        redactor=redactor_of(settings),
    )


def inbox_name(settings: Settings) -> str:
    """The collection that applications and API write their requests to."""
    return settings.names[INBOX]
