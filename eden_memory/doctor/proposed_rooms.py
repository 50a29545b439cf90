"""Sessions of several users among the sampled ones, and what memory is to keep of them. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from eden_memory.directory.participants import ROOM_CHOICES
from eden_memory.doctor.finding import Finding

RoomChoice = Literal["group", "authors", "none"]
CHOICES: Mapping[RoomChoice, str] = {
    "group": "memory of the group that the session's document names",
    "authors": "what each user says of themselves, in that user's own memory",
    "none": "no facts",
}
LINES: Mapping[RoomChoice, str] = {
    "authors": 'shared_sessions = "authors"',
    "none": 'shared_sessions = "session"',
}


@dataclass(frozen=True, slots=True)
class SampledRooms:
    """How many of the sampled sessions have several users."""

    several: int
    sessions: int
    group_id: str | None = None
    """A field of the sessions' documents that may name a group."""

    @property
    def what(self) -> str:
        """Return how many there are, as a clause."""
        return f"in {self.several} of {self.sessions} sampled sessions several users take part"


def chosen_line(rooms: SampledRooms | None, choice: RoomChoice | None) -> tuple[str, str] | None:
    """Return the section and the line of settings that a choice sets; None if there is nothing to set yet."""
    if choice == "group":
        field = None if rooms is None else rooms.group_id
        return None if field is None else ("sessions", f'group_id = "{field}"')
    return None if choice is None else ("memory", LINES[choice])


def memory_lines(rooms: SampledRooms | None, choice: RoomChoice | None) -> Iterator[str]:
    """Yield the section `[memory]` with the choice; without one, with all of them as comments."""
    if rooms is None:
        return
    yield "[memory]"
    if choice is not None and choice in LINES:
        yield f"{LINES[choice]}  # of sessions of several users: {CHOICES[choice]}"
    elif choice is None or rooms.group_id is None:
        field = rooms.group_id or "…"
        yield f"# {rooms.what}. Choose what memory keeps of them:"
        yield f'# {CHOICES["group"]}: in [sessions], group_id = "{field}"'
        yield from (f"# {CHOICES[name]}: {line}" for name, line in LINES.items())
    yield ""


def finding_of_rooms(rooms: SampledRooms) -> Finding:
    """Of sessions in which several users take part."""
    return Finding("rooms", "warn", f"{rooms.what}: memory keeps no facts of them by default", ROOM_CHOICES)
