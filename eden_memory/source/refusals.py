"""Why the tailer does not start on a source, and what to do about it. Pure."""

from collections.abc import Iterable

from eden_memory.errors import EdenError

CONSEQUENCE = (
    "That ends the records of messages that are not in that collection; what was formed from them stays."
)
BESIDE = (
    "set EDEN_MONGODB_DATABASE, EDEN_KAFKA_TOPIC_PREFIX and EDEN_KAFKA_GROUP_PREFIX to names of its own (where both "
    "read from one database, EDEN_MONGODB_PREFIX too) and EDEN_SOURCE_DATABASE to {database}, then run "
    "`eden topics apply` and `eden setup`"
)


def named(source: str) -> str:
    """`database.collection` of a source's name."""
    return source.partition("/")[2] or source


def another_source(source: str, known: Iterable[str]) -> EdenError:
    """The settings name another collection than the one that memory is formed from."""
    before = ", ".join(map(named, sorted(known)))
    beside = BESIDE.format(database=named(source).partition(".")[0])
    return EdenError(
        f"the settings name {named(source)}, but memory is formed from {before}",
        f"To go on with {before}, set EDEN_SOURCE_DATABASE and EDEN_MESSAGES_COLLECTION to it, or start in the "
        f"folder of its eden.toml. For a second memory of {named(source)} beside it, {beside}. "
        f"To change to {named(source)}, start once with `eden run --new-source`. {CONSEQUENCE}",
    )


def nothing_there(source: str, messages: int) -> EdenError:
    """The collection is missing or empty, and Kafka holds records of its messages."""
    return EdenError(
        f"the collection {named(source)} does not exist or is empty, but {messages:,} messages of it are recorded",
        "Check EDEN_SOURCE_DATABASE and EDEN_MESSAGES_COLLECTION, or restore the collection. If the messages are "
        f"meant to be gone, start once with `eden run --new-source`. {CONSEQUENCE}",
    )


def still_followed(source: str, known: Iterable[str]) -> EdenError:
    """A tailer leads on the source that is to be left."""
    before = ", ".join(map(named, sorted(known)))
    return EdenError(
        f"a tailer still follows {before}: {named(source)} cannot take its place",
        "Stop every `eden run` of the former source, wait until its lease ends "
        "(EDEN_TAILER_LEASE_SECONDS), and start again.",
    )
