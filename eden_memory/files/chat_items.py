"""Conversations exported from ChatGPT and Claude: their messages, and a request to form each conversation."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, cast
from zipfile import BadZipFile, ZipFile

from eden_memory.errors import Invalid
from eden_memory.files.file_items import Element, Fields, elements, fields_of
from eden_memory.files.import_items import Entry, ImportedAs, SkippedItem, Unimportable, imported_or_skipped
from eden_memory.mongo.document_fields import Unusable, text_of
from eden_memory.schemas.scopes import Scope

NAMES = "conversations*.json"

MOST_UNPACKED = 10_000_000_000

HIDDEN = "is_visually_hidden_from_conversation"

ROLES = {"user": "user", "human": "user", "assistant": "assistant"}


class ExportedMessage(NamedTuple):
    """A message of a conversation; `own`: its id there. The text is empty if the message has none."""

    own: Any
    role: str
    text: str
    at: Any


NOTHING = ExportedMessage(None, "user", "", None)


class ExportedConversation(NamedTuple):
    """A conversation of an export, by its own id."""

    own: Any
    messages: Sequence[ExportedMessage | None]
    """None: a message that cannot be read."""


async def chatgpt(path: str, to: ImportedAs) -> AsyncIterator[Entry]:
    """Yield the messages of ChatGPT's export: the branch of each conversation that was shown last."""
    for entry in _items(path, to, _of_chatgpt):
        yield entry


async def claude(path: str, to: ImportedAs) -> AsyncIterator[Entry]:
    """Yield the messages of Claude's export."""
    for entry in _items(path, to, _of_claude):
        yield entry


def _items(path: str, to: ImportedAs, read: Callable[[Fields], ExportedConversation]) -> Iterator[Entry]:
    if to.mapping.user is None:
        raise Invalid("an export does not say whose conversations it holds", "Name the user: --user ID.")
    scope = Scope.of_user(to.mapping.agent, to.mapping.user)
    with TemporaryDirectory() as folder:
        for file in _files(Path(path), Path(folder)):
            for element in elements(file):
                yield from _conversation(element._replace(where=_where(file, element)), to, scope, read)


def _where(file: Path, element: Element) -> str:
    return element.where if file.name == "conversations.json" else f"{file.name}, {element.where}"


def _conversation(
    element: Element, to: ImportedAs, scope: Scope, read: Callable[[Fields], ExportedConversation]
) -> Iterator[Entry]:
    where = element.where
    try:
        found = read(fields_of(element))
        session = to.session(scope, found.own)
    except Unimportable as error:
        yield SkippedItem(where, error.reason, error.bad)
        return
    except Exception:  # noqa: BLE001 - whatever it is, this conversation raised it
        yield SkippedItem(where, "it is not a conversation in the format of the export", bad=True)
        return
    number, last = 0, None
    for message in found.messages:
        place = f"{where}, message {number + 1}"
        if message is None:
            yield SkippedItem(place, "it is not a message in the format of the export", bad=True)
        elif message.text.strip():
            number, last = number + 1, message.at or last
            yield imported_or_skipped(
                place,
                partial(to.message, place, message.own, session, message.role, message.text, scope, last),
            )
    if number:
        yield to.formed(where, session, scope)
    else:
        yield SkippedItem(where, "the conversation has no text")


def _of_chatgpt(fields: Fields) -> ExportedConversation:
    """Walk from the message shown last up to the first."""
    nodes = cast("Mapping[str, Fields]", fields["mapping"])
    name, branch, seen = fields.get("current_node"), list[Fields](), set[str]()
    while name is not None and name not in seen:
        seen.add(name)
        branch.append(nodes[name])
        name = nodes[name].get("parent")
    messages = (node.get("message") for node in reversed(branch))
    own = fields.get("conversation_id") or fields["id"]
    return ExportedConversation(own, [_or_none(_message, message) for message in messages])


def _or_none(read: Callable[[Any], ExportedMessage], message: Any) -> ExportedMessage | None:
    """Return a message, or None for one that cannot be read: the others keep their places."""
    try:
        return read(message)
    except Exception:  # noqa: BLE001 - whatever it is, this message raised it
        return None


def _message(message: Fields | None) -> ExportedMessage:
    """Return what a person or the assistant said; an empty text for everything else."""
    role = ROLES.get(message["author"]["role"]) if message else None
    if message is None or role is None or _inside(message, "metadata", HIDDEN):
        return NOTHING
    return ExportedMessage(
        message["id"], role, _text(_inside(message, "content", "parts")), message.get("create_time")
    )


def _inside(fields: Fields, name: str, inner: str) -> Any:
    found: Fields = fields.get(name) or {}
    return found.get(inner)


def _of_claude(fields: Fields) -> ExportedConversation:
    said = [_or_none(_claudes, message) for message in fields["chat_messages"]]
    return ExportedConversation(fields["uuid"], said)


def _claudes(message: Fields) -> ExportedMessage:
    return ExportedMessage(
        message["uuid"],
        ROLES[message["sender"]],
        _text(message.get("text")) or _text(message.get("content")),
        message.get("created_at"),
    )


def _text(parts: Any) -> str:
    try:
        return text_of(parts)
    except Unusable:
        return ""


def _files(path: Path, folder: Path) -> Iterator[Path]:
    """Yield the files of conversations: of a folder, of an archive (unpacked into `folder`), or the file itself."""
    if path.is_dir():
        found = sorted(path.glob(NAMES))
    elif path.suffix == ".zip":
        found = _unpacked(path, folder)
    else:
        found = [path]
    if not found:
        raise Invalid(
            f"{path} contains no {NAMES}", "Give the export as it was downloaded, or its conversations.json."
        )
    yield from found


def _unpacked(path: Path, folder: Path) -> list[Path]:
    try:
        with ZipFile(path) as archive:
            members = [member for member in archive.infolist() if Path(member.filename).match(NAMES)]
            if sum(member.file_size for member in members) > MOST_UNPACKED:
                raise Invalid(f"{path} holds more than {MOST_UNPACKED:,} bytes of conversations")
            members.sort(key=lambda member: member.filename)
            return [Path(archive.extract(member, folder)) for member in members]
    except FileNotFoundError:
        raise Invalid(f"there is no file {path}") from None
    except (BadZipFile, OSError, RuntimeError):  # RuntimeError: encrypted
        raise Invalid(f"{path} cannot be read as a ZIP archive") from None
