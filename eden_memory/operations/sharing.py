"""The calls of MemoryService on what came from users into memory that others see: list it, and take it back."""

from eden_memory.errors import Conflict, NotFound
from eden_memory.memory.memory_views import SharedView
from eden_memory.memory.user_memory_store import SharedItem, SharedItems, taken_back
from eden_memory.mongo.bson_ids import encode_id
from eden_memory.operations import parameters as p
from eden_memory.operations.correcting import seen_by_others
from eden_memory.operations.reading import ReadCalls
from eden_memory.schemas.documents import InboxForget
from eden_memory.source.inbox_store import ask_all


class SharingCalls(ReadCalls):
    """For operators: Refused where the caller may not change what others see."""

    async def list_shared(self, *, limit: p.Limit = 50) -> list[SharedView]:
        """Return what came from users into memory of the agent, its shards and its groups, newest first.

        `limit`: 1 to 200.
        """
        return [_view(item) for item in await (await self._shared()).newest(limit, self._agent_id)]

    async def take_back(self, memory_id: p.MemoryId, *, move: p.Move = False) -> str:
        """Retire an item of :meth:`list_shared`, or (`move`) give it to the one user who said it.

        What says the same is not shared again. The id of the request; NotFound; Conflict for a move of what rests
        on the words of several users, or of none that is known.
        """
        found = await (await self._shared()).of([memory_id], self._agent_id)
        if not found:
            raise NotFound("there is no such shared memory here")
        if move and len(found[0].users) != 1:
            raise Conflict(
                "it rests on the words of several users, or of none that is known", "Retire it instead."
            )
        documents = taken_back(found[0], self._asked_by[:256], move=move)
        inbox = self.memory.source[self.memory.settings.names[InboxForget.COLLECTION]]
        await ask_all(inbox, documents)
        return encode_id(documents[0]["_id"])

    async def _shared(self) -> SharedItems:
        if self.changes_shared is False:
            raise seen_by_others("agent")
        readers = await self.memory.current()
        settings = readers.settings
        return SharedItems(self.memory.database, settings.names, forgets=settings.messages.forgets)


def _view(item: SharedItem) -> SharedView:
    return SharedView(
        item.kind, item.id, item.scope, item.content, item.said_at, item.session_ids, item.users
    )
