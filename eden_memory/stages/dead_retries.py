"""Dead letters that people ask for, tried again inside their stage.

Published once more to its topic, an old record would become the newest of its key for every reader, and compaction
would keep it in place of the newer one.
"""

from collections.abc import Callable, Mapping
from hashlib import blake2b

from aiokafka import TopicPartition

from eden_memory.schemas.documents import DeadLetter, GivenUp
from eden_memory.stages.dead_letter_store import DeadLetters
from eden_memory.stages.dead_letters import record_of
from eden_memory.stages.lanes import AssignedPartition, Queued


class DeadRetries:
    """Tries those letters of one stage again that people ask for and whose original partition is held here."""

    def __init__(self, letters: DeadLetters, stage: str, queue: Callable[[Queued], None]) -> None:
        self._letters, self._program, self._queue = letters, letters.origin(stage).program, queue
        self._under_way: dict[str, tuple[int, AssignedPartition]] = {}
        self._items: dict[Queued, str] = {}

    async def look(self, homes: Mapping[TopicPartition, AssignedPartition]) -> None:
        """Queue what is asked for and not under way in the current assignment."""
        self._items = {item: name for item, name in self._items.items() if not item.home.revoked}
        for asked in await self._letters.asked(self._program):
            place = record_of(asked)
            home = homes.get(TopicPartition(place.topic, place.partition))
            if home is None or home.revoked or self._has(asked, home):
                continue
            self._under_way[asked.id] = (asked.retries, home)
            letter = await self._letters.get(asked.id)
            if letter is not None and letter.state == "asked" and not home.revoked:
                record = record_of(letter)
                item = Queued(record, home, record.size, retry=_number(letter), times=letter.retries)
                self._items[item] = letter.id
                self._queue(item)

    def _has(self, asked: DeadLetter, home: AssignedPartition) -> bool:
        times, of = self._under_way.get(asked.id, (0, None))
        return of is home and times == asked.retries

    async def finished(self, item: Queued, why: GivenUp | None) -> None:
        """Note how a retry ended; if its partition has moved nothing is published, and the next holder goes on."""
        name = self._items.get(item)
        if name is not None and not item.home.revoked:
            await self._letters.tried(name, item.times, why)
            del self._items[item], self._under_way[name]


def _number(letter: DeadLetter) -> int:
    """A number of this retry alone."""
    return int.from_bytes(blake2b(f"{letter.id}#{letter.retries}".encode(), digest_size=6).digest()) or 1
