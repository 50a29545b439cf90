"""Find the messages of conversations that branch in whose place others are shown."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pymongo.asynchronous.collection import AsyncCollection

from eden_memory.directory.branches import (
    BRANCH_FIELDS,
    BRANCH_TEXT,
    TreeFields,
    TreeMessage,
    replaced,
    tree_of,
)
from eden_memory.directory.listed_messages import BETWEEN, OWN_IDS, other_branches
from eden_memory.mongo.document_fields import (
    cut_in_query,
    getter,
    is_json,
    marked_if,
    paths_of,
    without_nested,
)
from eden_memory.mongo.ids import decode_id, encode_id
from eden_memory.mongo.lenient_decoding import found_documents, readable
from eden_memory.settings import MessagesSettings

Row = Mapping[str, Any]
MOST_OF_TREE = 10_000
"""Messages of a session, the newest, that are looked at for its branches."""
AT_ONCE = 8
"""Sessions whose messages are read at the same time."""
ENOUGH = 200
"""Characters of a text that are read to see whether it has any, and a mark in it."""
TEXT = "_text"


class ConversationTrees:
    """`messages` is the application's collection of messages, or of documents that list them."""

    def __init__(self, messages: AsyncCollection[Any], paths: MessagesSettings) -> None:
        self._messages, self._paths = messages, paths
        self._tree = tree_of(paths)
        listed = paths.list if paths.list is not None and not paths.speakers else None
        self._list = None if listed is None or is_json(listed) else listed
        self._is_marked = marked_if(paths.unread)

    async def replaced(
        self, session_ids: Iterable[str], most_milliseconds: int | None = None
    ) -> dict[str, frozenset[str]]:
        """Return, where messages form trees, those of each session in whose place others are shown; ids typed.

        `most_milliseconds`: for each query; then ExecutionTimeout.
        """
        wanted = list(dict.fromkeys(session_ids))
        limit = {} if most_milliseconds is None else {"max_time_ms": most_milliseconds}
        if not wanted:
            return {}
        if self._list is not None:
            return await self._in_lists(wanted, self._list, limit)
        if self._tree is None:
            return {}
        tree, slots = self._tree, asyncio.Semaphore(AT_ONCE)

        async def of(session: str) -> frozenset[str]:
            async with slots:
                return await self._in_tree(session, tree, limit)

        return dict(zip(wanted, await asyncio.gather(*map(of, wanted)), strict=True))

    async def _in_tree(self, session: str, tree: TreeFields, limit: dict[str, int]) -> frozenset[str]:
        paths = self._paths
        read = without_nested(sorted({*tree, *paths_of(paths.unread)}))
        rows = await found_documents(
            "message",
            self._messages,
            {paths.session_id: decode_id(session)},
            {**dict.fromkeys(read, 1), TEXT: cut_in_query(paths.contents, ENOUGH)},
            sort=[(name, -1) for name in dict.fromkeys((paths.created_at, "_id"))],
            limit=MOST_OF_TREE,
            **limit,
        )

        def message(row: Row) -> TreeMessage:
            text = row.get(TEXT)
            said = isinstance(text, str) and bool(text.strip()) and not self._is_marked(row)
            return TreeMessage.of(encode_id(row["_id"]), row, tree, said=said)

        return replaced(list(readable("message", reversed(rows), message)))

    async def _in_lists(
        self, sessions: Sequence[str], path: str, limit: dict[str, int]
    ) -> dict[str, frozenset[str]]:
        """Return what lists hold beside the shown branch."""
        named = self._paths.session_id
        inner = (f"{path}.{name}" for name in (*OWN_IDS, *BRANCH_FIELDS, BRANCH_TEXT))
        rows = await found_documents(
            "message",
            self._messages,
            {named: {"$in": [*map(decode_id, sessions)]}},
            dict.fromkeys(without_nested(sorted({"_id", named, *inner})), 1),
            **limit,
        )

        def read(row: Row) -> tuple[str, set[str]]:
            document, listed = encode_id(row["_id"]), getter(path)(row)
            names = {encode_id(f"{document}{BETWEEN}{name}") for name in other_branches(listed)}
            return encode_id(getter(named)(row)), names

        found = dict.fromkeys(sessions, frozenset[str]())
        for session, names in readable("message", rows, read):
            found[session] = found.get(session, frozenset()) | names
        return found
