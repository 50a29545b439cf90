"""The fields of an application's sampled documents, and what kinds of values they hold. Pure."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from bson import ObjectId

from eden_memory.mongo.document_fields import Unusable, moment_of, text_of, unit_of
from eden_memory.mongo.ids import encode_id
from eden_memory.schemas.ids import NoId

Row = Mapping[str, Any]

DEEPEST = 4

WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

EARLIEST, LATEST = "2000", "2100"


@dataclass(frozen=True, slots=True)
class SampledField:
    """One path, and its value in each sampled document; None where it is missing."""

    path: str
    values: Sequence[Any]

    @property
    def words(self) -> list[str]:
        """The words of its path: `sentAt`, `sent_at` and `sent.at` are the same."""
        return [word.lower() for word in WORD.findall(self.path)]

    @property
    def present(self) -> list[Any]:
        """The values that are there."""
        return [value for value in self.values if value is not None]

    def share(self, test: Callable[[Any], bool]) -> float:
        """The share of all documents whose value passes."""
        return sum(value is not None and test(value) for value in self.values) / len(self.values)


def sampled_fields(documents: Sequence[Mapping[str, Any]]) -> list[SampledField]:
    """Every path of the documents but `_id`, in the order in which they come."""
    found: dict[str, list[Any]] = {}
    for number, document in enumerate(documents):
        for path, value in _walk(document):
            found.setdefault(path, [None] * len(documents))[number] = value
    return [SampledField(path, values) for path, values in found.items() if path != "_id"]


def _walk(document: Mapping[str, Any], outer: str = "", depth: int = 1) -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        if not name or "." in name or name.startswith("$"):
            continue  # no dotted path leads there
        if isinstance(value, Mapping):
            if depth < DEEPEST:
                yield from _walk(cast("Mapping[str, Any]", value), f"{outer}{name}.", depth + 1)
        else:
            yield outer + name, value


def is_id(value: Any) -> bool:
    """Whether a value may be the id of a session or an author."""
    with suppress(NoId):
        return bool(encode_id(value)) and value != ""
    return False


def is_moment(value: Any) -> bool:
    """Whether a value says when something was, in a form that the tailer reads; an id says something else first."""
    moment = None if isinstance(value, ObjectId) else moment_of(value)
    return moment is not None and EARLIEST <= moment < LATEST


def is_text(value: Any) -> bool:
    """Whether the tailer finds text in a value: it is text, or a list of parts."""
    try:
        return text_of(value) != "" and not (isinstance(value, str) and is_moment(value))
    except Unusable:
        return False


def kind(value: Any) -> str:
    """Name the kind of a value, in the words of `eden.toml`'s comments."""
    match value:
        case str():
            return "text"
        case bool():
            return "true or false"
        case list():
            return "list of parts"
        case datetime():
            return "date"
        case int() | float():
            return "number"
        case _:
            return type(value).__name__


def moment_kind(value: Any) -> str:
    """The form in which a value says when something was."""
    if isinstance(value, str):
        return f"epoch {unit_of(float(value))} as text" if value.strip().isdigit() else "text"
    if isinstance(value, Mapping):
        return "a number in two halves"
    return f"epoch {unit_of(value)}" if isinstance(value, int | float) else kind(value)


def kinds(values: Iterable[Any], of: Callable[[Any], str] = kind) -> str:
    """The kinds of some values, the commonest first."""
    found = [of(value) for value in values if value is not None]
    return ", ".join(sorted(set(found), key=lambda name: (-found.count(name), name)))
