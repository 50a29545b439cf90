"""Follow changes of the memory that an asker may see: each scope in its newest state."""

import asyncio
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncGenerator, Mapping
from hashlib import sha256
from typing import Any, cast

from eden_memory.access.visible import Asker, VisibleMemory, VisibleScope
from eden_memory.app.memory import ProcessMemory
from eden_memory.context.cached_contexts import Contexts, tags_of_scope
from eden_memory.context.context_feed import ContextChange
from eden_memory.errors import Invalid
from eden_memory.memory.memory_views import MemoryChange
from eden_memory.schemas.scopes import Scope

LONGEST = 65_536
OF_ANOTHER = -1
"""No revision of the namespace that is live."""
Revisions = dict[str, int]


async def changes(memory: ProcessMemory, asked: Asker, after: str | None) -> AsyncGenerator[MemoryChange]:
    """Yield changes from now on, or since a change's id. However much changed, one read of MongoDB catches up:
    a reader that is slow gets a scope's newest state once. When another namespace becomes live, each scope has
    changed. While the change stream is down, changes wait: once it is open, what is visible is read again. Ends when
    the memory is closed.
    """
    following = _Following(asked)
    contexts = (await memory.current()).contexts
    with contexts.told(following.notice):
        contexts.watch()
        view = await following.look(contexts)
        following.begin(view, None if after is None else seen_by(after))
        while True:
            for change in following.differences(view):
                yield change
            await following.something.wait()
            following.something.clear()
            now = (await memory.current()).contexts
            if now.closed:
                return
            if now is not contexts:
                contexts = now
                following.moved()
            view = await following.look(contexts)


async def position(memory: ProcessMemory, asked: Asker) -> str:
    """Return the id of a change behind which comes whatever changes from now on."""
    return position_of(await (await memory.current()).contexts.view(asked))


class _Following:
    """The revisions that one reader has seen, by a digest of each visible scope's key."""

    def __init__(self, asked: Asker) -> None:
        self._asked = asked
        self._keys: frozenset[str] = frozenset()
        self._scopes: dict[str, Scope] = {}
        self._seen: Revisions = {}
        self._meanwhile: set[str] | None = None
        """The keys of scopes that have changed since a read began; None: nothing is read."""
        self.something = asyncio.Event()

    def notice(self, changed: ContextChange) -> None:
        """Wake the reader, if the change may concern it."""
        asked = self._asked
        if changed.what == "scope":
            if self._meanwhile is not None:
                self._meanwhile.add(changed.id)
            mine = changed.id in self._keys or f"session:{asked.session_id}" in tags_of_scope(changed.id)
        else:
            mine = changed.what == "everything" or changed.id in (asked.session_id, asked.user_id)
        if mine:
            self.something.set()

    async def look(self, contexts: Contexts) -> VisibleMemory:
        """Return the visible memory; if a scope of it changes while it is read, it is read again."""
        self._meanwhile = set()
        view = await contexts.view(self._asked)
        if not self._meanwhile.isdisjoint(view.scope_keys):
            self.something.set()
        self._meanwhile = None
        return view

    def begin(self, view: VisibleMemory, seen: Revisions | None) -> None:
        """Start from the revisions that the reader has seen; None: from the current ones."""
        self._seen = _revisions(view) if seen is None else seen
        self._keys = frozenset(view.scope_keys)
        self._scopes = {shown.scope.key: shown.scope for shown in view.shown}

    def moved(self) -> None:
        """Expect another namespace's revisions."""
        self._seen = dict.fromkeys(self._seen, OF_ANOTHER)

    def differences(self, view: VisibleMemory) -> list[MemoryChange]:
        """Return the changes since the last look, and note them as seen."""
        found: list[MemoryChange] = []
        shown = {visible.scope.key: visible for visible in view.shown}
        for key, visible in shown.items():
            if self._seen.get(_short(key)) != visible.snapshot.revision:
                self._seen[_short(key)] = visible.snapshot.revision
                found.append(_changed(visible, _id(self._seen)))
        for key, scope in (self._named(view) | self._scopes).items():
            if key not in shown and self._seen.pop(_short(key), None) is not None:
                found.append(MemoryChange(_id(self._seen), "gone", scope, 0, None))
        self._seen = {key: self._seen[key] for key in _revisions(view)}
        self._keys = frozenset(view.scope_keys)
        self._scopes = {key: visible.scope for key, visible in shown.items()}
        return found

    def _named(self, view: VisibleMemory) -> dict[str, Scope]:
        """Return the visible scopes without memory; they may have had some when the reader last looked."""
        stored = {shown.scope.key for shown in view.shown}
        return {key: Scope.of_key(key, self._asked.agent_id) for key in view.scope_keys if key not in stored}


def _changed(shown: VisibleScope, seen: str) -> MemoryChange:
    snapshot = shown.snapshot
    return MemoryChange(
        id=seen,
        what="changed",
        scope=shown.scope,
        revision=snapshot.revision,
        changed_at=snapshot.changed_at,
        facts=snapshot.active_facts,
        buffered=len(snapshot.buffer),
        blob_version=snapshot.blob_version,
    )


def position_of(view: VisibleMemory) -> str:
    """Return the id of a change behind which comes whatever changes after this view."""
    return _id(_revisions(view))


def _revisions(view: VisibleMemory) -> Revisions:
    return {_short(key): revision for key, revision in view.revisions.items()}


def _short(key: str) -> str:
    return sha256(key.encode()).hexdigest()[:12]


def _id(seen: Mapping[str, int]) -> str:
    return urlsafe_b64encode(json.dumps(seen, separators=(",", ":")).encode()).decode().rstrip("=")


def seen_by(after: Any) -> Revisions:
    """Return the revisions that a change's id stands for; Invalid if it is not such an id."""
    try:
        found: Any = json.loads(urlsafe_b64decode(after[:LONGEST] + "=" * (-len(after) % 4)))
    except (ValueError, TypeError, RecursionError):
        found = None
    if not isinstance(found, dict) or any(
        type(revision) is not int for revision in cast("dict[str, Any]", found).values()
    ):
        raise Invalid("this is not the id of a change", "Give the id of the last change that was seen.")
    return cast("Revisions", found)
