"""Conversations that branch, where an answer is made again or a message edited: what is on the shown branch. Pure."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from eden_memory.settings import MessagesSettings

E = TypeVar("E", bound=Mapping[str, Any])


class TreeFields(NamedTuple):
    """Fields in which a program's messages keep their own id, and that of the message that they follow."""

    id: str
    parent: str


TREES: Mapping[tuple[str, str], TreeFields] = {
    ("conversationId", "isCreatedByUser"): TreeFields("messageId", "parentMessageId"),  # LibreChat
}
"""By the mapped session and role, which say whose messages they are."""


BRANCH_FIELDS = ("ancestors", "children")
"""Of the elements of HF chat-ui's lists, which hold all branches."""
BRANCH_TEXT = "content"
"""The field of such an element that holds its text."""


class TreeMessage(NamedTuple):
    """A message of a tree; `name` is the one by which it is asked for."""

    name: str
    id: Hashable
    parent: Hashable
    said: bool = True
    """Whether it has text and is neither deleted nor excluded: an answer that failed takes nothing's place."""

    @classmethod
    def of(cls, name: str, row: Mapping[str, Any], fields: TreeFields, *, said: bool = True) -> "TreeMessage":
        """Read what is text in a document; anything else leads nowhere."""
        own, parent = (value if isinstance(value := row.get(path), str) else None for path in fields)
        return cls(name, own, parent, said)


def tree_of(messages: MessagesSettings) -> TreeFields | None:
    """Return the fields of the tree that the mapped messages form, if they do."""
    return None if messages.list is not None else TREES.get((messages.session_id, messages.role))


def replaced(messages: Sequence[TreeMessage]) -> frozenset[str]:
    """Return the names of messages in whose place others are shown; the newest message is the last one.

    Shown are the newest message that says something and the messages that lead to it. Replaced is what branches off
    from these, with all that follows on it. A message that is connected with neither stays.
    """
    by_id, shown = {message.id: message for message in messages}, set[Hashable]()
    beside = set[Hashable]()
    at = next((message for message in reversed(messages) if message.said), None)
    while at is not None and at.id not in shown:
        shown.add(at.id)
        beside.add(at.parent)
        at = by_id.get(at.parent)
    beside.discard(None)

    def is_replaced(message: TreeMessage) -> bool:
        met = set[Hashable]()
        above: TreeMessage | None = message
        while above is not None and above.id not in shown and above.id not in met:
            if above.parent in beside:
                return True
            met.add(above.id)
            above = by_id.get(above.parent)
        return False

    return frozenset(message.name for message in messages if is_replaced(message))


def shown_elements(elements: Sequence[E]) -> list[E]:
    """Return the elements of a list of messages that lead to the newest one with text, and what follows on that.

    Elements say by their ancestors where they stand; of a list in which the newest one does not, all are returned.
    """
    nothing: Mapping[str, Any] = {}
    newest = next(filter(_says, reversed(elements)), elements[-1] if elements else nothing)
    ancestors, children = map(newest.get, BRANCH_FIELDS)
    if not (isinstance(ancestors, list) and ancestors and isinstance(children, list) and newest.get("id")):
        return list(elements)
    own = str(newest["id"])
    shown = {*map(str, cast("list[Any]", ancestors)), own}

    def is_shown(element: E) -> bool:
        above = element.get("ancestors")
        follows = isinstance(above, list) and own in map(str, cast("list[Any]", above))
        return follows or element.get("id") is None or str(element["id"]) in shown

    return [element for element in elements if is_shown(element)]


def _says(element: Mapping[str, Any]) -> bool:
    text = element.get(BRANCH_TEXT)
    return isinstance(text, str) and bool(text.strip())
