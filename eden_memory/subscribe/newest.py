"""The newest version of each entity, whatever the order in which records come and however often."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from eden_memory.schemas.events import Event
from eden_memory.subscribe.tombstone import Tombstone

E = TypeVar("E", bound=Event)


class EntityVersion(NamedTuple):
    """One version of a fact, reflection or blob."""

    entity: str
    version: int


def version_of(record: Event | Tombstone) -> EntityVersion:
    """Return which version of which entity a record is: its key is `entity@version`, `entity` for the first one."""
    key = record.key if isinstance(record, Tombstone) else record.key()
    entity, _, version = key.rpartition("@")
    return EntityVersion(entity, int(version)) if entity and version.isdecimal() else EntityVersion(key, 1)


class NewestVersions(Generic[E]):
    """A view of `memory.facts`, `memory.reflections` or `memory.consolidations` in this process's memory.

    An entity's state is its highest version that is not erased; what is erased stays erased. A consumer with a
    database does the same there: it stores `version_of(event)` and writes only if the stored version is lower.
    """

    def __init__(self) -> None:
        self._versions: defaultdict[str, dict[int, E]] = defaultdict(dict)
        self._erased: set[EntityVersion] = set()

    def take(self, event: E) -> bool:
        """Add a record; return whether it changed its entity's state (False: a repeat, an older version, erased)."""
        found = version_of(event)
        if found in self._erased:
            return False
        before = self.get(found.entity)
        self._versions[found.entity].setdefault(found.version, event)
        return self.get(found.entity) is not before

    def erase(self, tombstone: Tombstone) -> bool:
        """Erase a version for good; return whether that changed its entity's state."""
        found = version_of(tombstone)
        before = self.get(found.entity)
        self._erased.add(found)
        self._versions.get(found.entity, {}).pop(found.version, None)
        return self.get(found.entity) is not before

    def get(self, entity: str) -> E | None:
        """Return the state of an entity, None if there is none or it was erased."""
        versions = self._versions.get(entity)
        return versions[max(versions)] if versions else None

    def __iter__(self) -> Iterator[E]:
        """Iterate over the states of all entities, retired ones too."""
        return (versions[max(versions)] for versions in self._versions.values() if versions)
