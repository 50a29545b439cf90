"""The application's collection and the change events that it gives; where the tailer's records go."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

from eden_memory.kafka.record import EVERYWHERE, EVERYWHERE_ELSE, Outgoing
from eden_memory.mongo.changes import ChangeEvent
from eden_memory.stages.publishing import partition_for
from tests.unit.source.mappings import change, message

PARTITIONS = 4


class Table:
    """A collection that is changed step by step, and the change events that it gives.

    Like the server, it looks an updated document up when the events are read (`events`), so an update may show
    what only a later one wrote, or nothing.
    """

    def __init__(self, *, pre_images: bool) -> None:
        self.documents: dict[str, dict[str, Any]] = {}
        self._pre_images, self._steps = pre_images, list[tuple[str, str, Any, Any, Any]]()
        self._versions: list[tuple[int, int | None]] = []
        self._within = False

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Steps that the server gives one cluster time."""
        self._within, before = True, len(self._steps)
        yield
        self._within = False
        number = self._versions[-1][0] + 1 if self._versions else 0
        self._versions += [(number, position) for position in range(len(self._steps) - before)]

    def step(self, kind: str, name: str, value: str) -> None:
        now = self.documents.get(name)
        if kind == "delete":
            if now is not None:
                self._note("delete", name, None, now, None)
                del self.documents[name]
        elif now is None or kind in ("replace", "placeholder"):
            content = "" if kind == "placeholder" else value
            after = message(name, session_id=value[0], content=content)
            self._note("insert" if now is None else "replace", name, after, now, None)
            self.documents[name] = after
        else:
            field = {"text": "content", "move": "session_id", "other": "likes"}[kind]
            after = {**now, field: value}
            self._note("update", name, None, now, [field])
            self.documents[name] = after

    def _note(self, operation: str, name: str, after: Any, before: Any, touched: Any) -> None:
        self._steps.append((operation, name, after, before if self._pre_images else None, touched))
        if not self._within:
            self._versions.append((self._versions[-1][0] + 1 if self._versions else 0, None))

    def events(self) -> list[ChangeEvent]:
        found: list[ChangeEvent] = []
        for (number, position), step in zip(self._versions, self._steps, strict=True):
            operation, name, after, before, touched = step
            document = self.documents.get(name) if operation == "update" else after
            found.append(
                change(
                    number,
                    operation,
                    document,
                    identity=name,
                    before=before,
                    touched=touched,
                    position=position,
                )._replace(id=name)
            )
        return found


def places(record: Outgoing) -> Iterator[int]:
    own = partition_for(record.ordering_key, PARTITIONS)
    if record.partition == EVERYWHERE:
        yield from range(PARTITIONS)
    elif record.partition == EVERYWHERE_ELSE:
        yield from (one for one in range(PARTITIONS) if one != own)
    else:
        yield own if record.partition is None else record.partition
