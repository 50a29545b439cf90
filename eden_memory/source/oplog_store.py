"""Read how long a place in the oplog lasts, where the server shows it."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure, PyMongoError

from eden_memory.logs import LibraryLogger

log = LibraryLogger("eden.tailer")


@dataclass(frozen=True, slots=True)
class OplogWindow:
    """The oplog's ends by its entries' times, and its size in bytes, as it is and at most."""

    first: datetime
    last: datetime
    used: float
    most: float

    @property
    def seconds(self) -> float:
        """Seconds between its ends."""
        return max(0.0, (self.last - self.first).total_seconds())

    def left(self, place: datetime) -> tuple[float, float] | None:
        """Return (seconds, bytes) until the entries after `place` go, at the window's pace; None: too young to judge.

        Nothing is removed before the oplog is full, so what is still free counts too.
        """
        if self.seconds < 1 or self.used <= 0:
            return None
        pace = self.used / self.seconds
        behind = min(max(0.0, (place - self.first).total_seconds()), self.seconds)
        room = behind * pace + max(0.0, self.most - self.used)
        return room / pace, room


class MongoOplog:
    """Reads `local.oplog.rs`; a server that refuses it (or a sharded cluster) is not asked again."""

    def __init__(self, client: AsyncMongoClient[dict[str, Any]]) -> None:
        self._local = client["local"]
        self._refused = False

    async def window(self) -> OplogWindow | None:
        """Return the window; None where it cannot be known."""
        if self._refused:
            return None
        try:
            return await self._read()
        except OperationFailure as error:
            self._refused = True
            log.info("the oplog's window is not known", reason=f"it cannot be read: code {error.code}")
        except PyMongoError as error:
            log.info("the oplog's window is not known for now", reason=type(error).__name__)
        return None

    async def _read(self) -> OplogWindow | None:
        oplog = self._local["oplog.rs"]
        first = await oplog.find_one(sort=[("$natural", 1)], projection={"ts": 1})
        last = await oplog.find_one(sort=[("$natural", -1)], projection={"ts": 1})
        if first is None or last is None:
            return None
        size = await self._local.command("collStats", "oplog.rs")
        return OplogWindow(
            _moment(first), _moment(last), float(size["size"]), float(size.get("maxSize", size["size"]))
        )


def _moment(entry: dict[str, Any]) -> datetime:
    return datetime.fromtimestamp(entry["ts"].time, UTC)
