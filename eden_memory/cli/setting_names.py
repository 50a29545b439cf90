"""Which setting was meant by a name that there is not."""

from difflib import get_close_matches

from pydantic import BaseModel

from eden_memory.settings import Settings


def nearest(name: str) -> str | None:
    """The setting or group that is called alike in the same place, or the same in another; None: none is."""
    place, dot, last = name.rpartition(".")
    groups = {"": Settings} | _groups()
    if place in groups and (alike := get_close_matches(last, groups[place].model_fields, 1)):
        return f"{place}{dot}{alike[0]}"
    return next((f"{group}.{last}" for group, kind in _groups().items() if last in kind.model_fields), None)


def _groups() -> dict[str, type[BaseModel]]:
    kinds = {name: field.annotation for name, field in Settings.model_fields.items()}
    return {
        name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, BaseModel)
    }
