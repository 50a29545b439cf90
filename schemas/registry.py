"""Which events a program reads, in which versions; old ones are upcast when decoded, step by step."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from pydantic import ValidationError

from eden_memory.schemas.events.base import Event
from eden_memory.schemas.reasons import reasons

Payload = dict[str, Any]
Upcast = Callable[[Payload], Payload]
"""The JSON object of one version → that of the next."""


class SchemaViolation(ValueError):  # noqa: N818 - the name that dead letters show
    """A value is not what its type promises. The reason names fields and rules, and holds no content."""


class Registry:
    """The types that a program reads.

    `upcasts` holds, under (name, version), the step from that version to the next; every version below an
    event's own has one, and no name stands twice (ValueError if not).
    """

    def __init__(self, events: Iterable[type[Event]], upcasts: Mapping[tuple[str, int], Upcast]) -> None:
        self.events: dict[str, type[Event]] = {}
        for event in events:
            if event.NAME in self.events:
                raise ValueError(f"{event.NAME} stands twice")
            self.events[event.NAME] = event
        self._upcasts = dict(upcasts)
        steps = {
            (name, version) for name, event in self.events.items() for version in range(1, event.VERSION)
        }
        if steps != set(self._upcasts):
            raise ValueError(f"upcasts missing or too many: {sorted(steps ^ set(self._upcasts))}")

    def decode(self, name: str, version: int, value: bytes) -> Event:
        """The event in its newest version; a SchemaViolation if `value` is not what `name` promises."""
        event = self.events.get(name)
        if event is None:
            raise SchemaViolation("the event type in ce_type is unknown")
        if not 1 <= version <= event.VERSION:
            raise SchemaViolation(f"{name} v{version} is not known here, only v1 to v{event.VERSION}")
        newest = value if version == event.VERSION else self._upcast(event, version, value)
        try:
            return event.model_validate_json(newest, extra="ignore")
        except ValidationError as error:
            raise SchemaViolation(f"{name} v{version}: {reasons(error)}") from None

    def _upcast(self, event: type[Event], version: int, value: bytes) -> bytes:
        payload = _object(event.NAME, version, value)
        try:
            for step in range(version, event.VERSION):
                payload = self._upcasts[event.NAME, step](payload)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            raise SchemaViolation(
                f"{event.NAME} v{version}: not what v{version} promises, no upcast"
            ) from None
        return json.dumps(payload).encode()


def _object(name: str, version: int, value: bytes) -> Payload:
    try:
        payload: object = json.loads(value)
    except ValueError:
        raise SchemaViolation(f"{name} v{version}: not JSON") from None
    if not isinstance(payload, dict):
        raise SchemaViolation(f"{name} v{version}: not a JSON object") from None
    return cast(Payload, payload)
