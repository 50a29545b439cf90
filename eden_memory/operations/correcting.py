"""The calls of MemoryService that correct memory: commands on facts, reflections and blobs."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from eden_memory.access.admission_store import Refused
from eden_memory.access.visible import Asker, VisibleMemory
from eden_memory.app.readers import Readers
from eden_memory.directory.stream_store import MongoStreams
from eden_memory.errors import Conflict, EdenError, Invalid, NotFound
from eden_memory.formation.consolidation_rules import BlobEdit, CurrentBlob, Refusal, stored_blob
from eden_memory.formation.memory_commands import reflection_refusal
from eden_memory.limits import ScopeLimits, limits_of
from eden_memory.memory.browsing_store import scopes_of
from eden_memory.memory.snapshot_store import MongoSnapshots
from eden_memory.operations import parameters as p
from eden_memory.operations.inbox_requests import CommandRequests
from eden_memory.operations.reading import ReadCalls
from eden_memory.schemas.documents import Fact, Reflection
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.scopes import Scope


class CorrectingCalls(ReadCalls):
    """Each call returns the typed id of its request at once; the running system carries it out a moment later.

    NotFound; Conflict for what has changed meanwhile, is retired or absorbed, or lacks a pinned sentence; Invalid;
    Refused for memory that others see, too, where the caller may not change that. With `expected_version` a request
    is carried out only if that version still stands by then.
    """

    @property
    def _requests(self) -> CommandRequests:
        return CommandRequests(self.memory, self._agent_id, self._asked_by)

    async def edit(
        self,
        memory_id: p.MemoryOrBlob,
        text: p.NewText,
        *,
        session: p.Session = None,
        user: p.User = None,
        expected_version: p.Expected = None,
        reason: p.Reason = None,
        expires_at: Annotated[datetime | None, p.PYTHON_ALONE] = None,
    ) -> str:
        """Give a fact or reflection (by its id), or a scope's blob (by the scope's key), another text.

        `expires_at`: when a fact retires by itself; None: as before.

        An edit of a blob names the version that it was written for (0: there is none yet), and keeps its pinned
        sentences. A reflection that a blob has absorbed is edited in the blob. The earlier text stays in the history.
        """
        asked, view, readers = await self._seen(session, user)
        if memory_id in view.scope_keys:
            if expected_version is None:
                raise Invalid(
                    "an edit of a blob needs the version that it was written for", "0: there is none."
                )
            edit = BlobEdit("edit_blob", text, expected_version)
            return await self._edit_blob(edit, memory_id, (asked, view, readers), reason)
        found, scope = await self._changeable(memory_id, (asked, view, readers), expected_version)
        times = {} if expires_at is None else {"expires_at": expires_at}
        if times and not isinstance(found, Fact):
            raise Invalid("only a fact expires")
        return await self._ask(
            "edit", found, scope, text=text, expected_version=expected_version, reason=reason, **times
        )

    async def retire(
        self,
        memory_id: p.MemoryId,
        *,
        session: p.Session = None,
        user: p.User = None,
        expected_version: p.Expected = None,
        reason: p.Reason = None,
    ) -> str:
        """Take a fact or reflection out of search, context and consolidation; its history stays."""
        seen = await self._seen(session, user)
        found, scope = await self._changeable(memory_id, seen, expected_version)
        return await self._ask("retire", found, scope, expected_version=expected_version, reason=reason)

    async def merge(
        self,
        fact_id: p.FactId,
        duplicate_id: p.DuplicateId,
        *,
        session: p.Session = None,
        user: p.User = None,
        reason: p.Reason = None,
    ) -> str:
        """Make one of two facts that say the same: the first takes over the sources of the second, which retires.

        The history of both stays. Invalid for facts of different scopes, and for anything that is no fact.
        """
        seen = await self._seen(session, user)
        fact, scope = await self._changeable(fact_id, seen, None)
        duplicate, other_scope = await self._changeable(duplicate_id, seen, None)
        both = isinstance(fact, Fact) and fact.id != duplicate.id and scope.key == other_scope.key
        if not both or not isinstance(duplicate, Fact):
            raise Invalid("these two cannot become one", "Name two facts of one scope.")
        return await self._requests.fact_command(
            "retire", duplicate, scope, reason=reason, replaced_by=fact.id
        )

    async def mark_private(
        self,
        memory_id: p.MemoryId,
        private: p.Private = True,
        *,
        session: p.Session = None,
        user: p.User = None,
        expected_version: p.Expected = None,
        reason: p.Reason = None,
    ) -> str:
        """Mark a reflection or fact as private: nothing of it reaches a broader scope. False takes the mark away.

        What was propagated from a reflection is then forgotten for good, also after a blob has absorbed it. Facts are
        never propagated themselves: with a fact, the reflections of its scope that rest on the same messages are
        marked, and later ones are not propagated.
        """
        asked, view, readers = await self._seen(session, user)
        browsing = self._browsing(readers)
        found, scope = await browsing.fact_or_reflection(asked, view, memory_id)
        self._demand_changeable(found, scope, asked, expected_version, changes_text=False)
        marked = [found] if isinstance(found, Reflection) else await browsing.resting_on(found)
        for reflection in marked:
            self._demand_own(scope, asked.user_id, reflection.sources)
        return await self._requests.mark_private(
            None if isinstance(found, Reflection) else found,
            marked,
            scope,
            private=private,
            expected_version=expected_version,
            reason=reason,
        )

    async def pin(
        self,
        scope: p.ScopeKey,
        sentence: p.Sentence,
        *,
        session: p.Session = None,
        user: p.User = None,
        expected_version: p.Expected = None,
        reason: p.Reason = None,
    ) -> str:
        """Put a sentence into the blob of a scope (by the scope's key); later versions keep it word for word."""
        edit = BlobEdit("pin", sentence, expected_version)
        return await self._edit_blob(edit, scope, await self._seen(session, user), reason)

    async def unpin(
        self,
        scope: p.ScopeKey,
        sentence: p.Sentence,
        *,
        session: p.Session = None,
        user: p.User = None,
        expected_version: p.Expected = None,
        reason: p.Reason = None,
    ) -> str:
        """Let the next consolidation reword a sentence that was pinned; until then it stays in the text."""
        edit = BlobEdit("unpin", sentence, expected_version)
        return await self._edit_blob(edit, scope, await self._seen(session, user), reason)

    async def _ask(
        self, action: Literal["edit", "retire"], found: Fact | Reflection, scope: Scope, **changes: Any
    ) -> str:
        if isinstance(found, Fact):
            return await self._requests.fact_command(action, found, scope, **changes)
        of_reflection = "edit_reflection" if action == "edit" else "retire_reflection"
        return await self._requests.memory_command(of_reflection, scope, reflection_id=found.id, **changes)

    async def _changeable(
        self, memory_id: str, seen: tuple[Asker, VisibleMemory, Readers], expected_version: int | None
    ) -> tuple[Fact | Reflection, Scope]:
        asked, view, readers = seen
        found, scope = await self._browsing(readers).fact_or_reflection(asked, view, memory_id)
        self._demand_changeable(found, scope, asked, expected_version)
        return found, scope

    def _demand_changeable(
        self,
        found: Fact | Reflection,
        scope: Scope,
        asked: Asker,
        expected_version: int | None,
        *,
        changes_text: bool = True,
    ) -> None:
        self._demand_own(scope, asked.user_id, found.sources)
        if isinstance(found, Reflection):
            refusal = reflection_refusal(found, expected_version, absorbed=found.absorbed and changes_text)
        else:
            stale = expected_version not in (None, found.version)
            refusal = "unknown" if not found.active else "stale" if stale else None
        if refusal is not None:
            raise _of_item(refusal, found, scope)

    async def _edit_blob(
        self, edit: BlobEdit, key: str, seen: tuple[Asker, VisibleMemory, Readers], reason: str | None
    ) -> str:
        asked, view, readers = seen
        if key not in view.scope_keys:
            raise _no_blob()
        scope = scopes_of(asked, view)[key]
        self._demand_own(scope, asked.user_id, ())
        blob, limits = await self._blob(scope, view, readers)
        changed = edit.applied_to(blob, limits)
        if isinstance(changed, str) and changed != "needless":
            raise _of_blob(changed, blob, limits)
        return await self._requests.memory_command(
            edit.action, scope, text=edit.text, expected_version=edit.expected_version, reason=reason
        )

    async def _blob(
        self, scope: Scope, view: VisibleMemory, readers: Readers
    ) -> tuple[CurrentBlob, ScopeLimits]:
        """Return the stored blob of a visible scope, version 0 if there is none. NotFound if it is hidden."""
        database, names = self.memory.database, readers.settings.names
        stored = await MongoSnapshots(database, names).without_users([scope.key], view.private)
        blob = stored_blob(stored.get(scope.key))
        if blob.version and not blob.text:  # it rests on what private sharing keeps from here
            raise _no_blob()
        streams = await MongoStreams(database, names).of(scope.agent_id)
        return blob, limits_of(scope, streams, readers.settings.limits.formation())

    def _demand_own(self, scope: Scope, user_id: str | None, sources: Sequence[SourceMessage]) -> None:
        """Raise Refused if others see the memory and the asker may not change it."""
        if scope.kind in ("user", "session") or self.changes_shared:
            return
        if self.changes_shared is False:
            raise seen_by_others(scope.kind)
        if user_id is not None and {source.user_id for source in sources} != {user_id}:
            raise Refused(
                f"this memory of the {scope.kind} has sources of other users",
                "Name no user to change it as the operator.",
            )


def seen_by_others(kind: str) -> Refused:
    """Return the refusal to change memory that others see, too."""
    return Refused(
        f"the memory of the {kind} is visible to others, too",
        "It takes a key with the right `admin`, or one bound to no user.",
    )


def _of_item(refusal: Refusal, found: Fact | Reflection, scope: Scope) -> Conflict:
    what = "reflection" if isinstance(found, Reflection) else "fact"
    match refusal:
        case "stale":
            return Conflict(f"the {what} is at version {found.version}", "Read it again, and ask again.")
        case "absorbed":
            return Conflict("a blob has absorbed the reflection", f"Edit the blob of its scope: {scope.key}")
        case _:
            return Conflict(f"the {what} is retired", "Only its history is left.")


def _of_blob(refusal: Refusal, blob: CurrentBlob, limits: ScopeLimits) -> EdenError:
    match refusal:
        case "stale":
            return Conflict(f"the blob is at version {blob.version}", "Read it again, and ask again.")
        case "pinned":
            return Conflict("the text lacks a pinned sentence", "Keep it word for word, or unpin it first.")
        case "too_long":
            return Invalid("the blob would be too long", f"It may have {limits.blob_words:,} words.")
        case _:
            return Conflict("the sentence is not pinned", "Give it word for word; the blob lists its pins.")


def _no_blob() -> NotFound:
    return NotFound(
        "there is no such blob here", "Give the key of a scope that has one, as user:s.AGENT:s.USER."
    )
