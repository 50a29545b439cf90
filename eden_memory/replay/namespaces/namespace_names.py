"""How a namespace is named, and what belongs to it. Pure."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from eden_memory.errors import EdenError, NotFound
from eden_memory.names import ORIGINAL, Placement, collections_of
from eden_memory.schemas.documents import (
    Consolidated,
    Document,
    Fact,
    Namespace,
    Reflection,
    Snapshot,
    StoredBlob,
)

KINDS: tuple[type[Document], ...] = (Fact, Reflection, Consolidated, StoredBlob, Snapshot)
"""The documents that the writer writes, and that are compared."""
WRITER = "atlas-writer"
_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
RESERVED = ("live", ORIGINAL)
READY = ("caught_up", "verified")
"""States in which a namespace may become live, and is kept true."""


def checked(name: str) -> str:
    """The name itself; an EdenError where it could be mistaken for something else."""
    if name in RESERVED or not _NAME.fullmatch(name):
        raise EdenError(
            f"{name!r} cannot name a namespace",
            f"Lower-case letters, digits and hyphens, a letter first, at most 32; neither of {RESERVED}.",
        )
    return name


def unknown(name: str) -> EdenError:
    """There is none of this name, or none any more."""
    return NotFound(f"there is no namespace {name}", "eden namespace list")


def prefix_of(live: str, name: str) -> str:
    """The prefix of a namespace's collections: never that of another's, as no name has an underscore."""
    return live + collections_of(checked(name))


def stage_of(name: str) -> str:
    """The name of the writer that fills a namespace; its group is this behind the groups' prefix."""
    return f"{WRITER}.{checked(name)}"


def sweeping_of(writer: str) -> str:
    """The stage, or the group, that takes what is forgotten out of a rebuild that somebody has stopped."""
    return f"{writer}.forgetting"


@dataclass(frozen=True, slots=True)
class Beside:
    """The namespaces that are kept up to date while another is live."""

    silent: tuple[Placement, ...]
    """A writer writes it; what it would announce, another says."""
    forgetting: tuple[Placement, ...]
    """Of other pipelines than live's, one each: its forgetting and its writer."""
    sweeping: tuple[Placement, ...] = ()
    """Rebuilds that are not filled to their end: only what is forgotten leaves them."""


def beside(live: Placement, namespaces: Iterable[Namespace]) -> Beside:
    """Every namespace that is not dropped, also the original, which has a document only once another was live.

    A reform's memory holds all that its topics do, whether or not it is formed to its end.
    """
    known = list(namespaces)
    there = [
        placement_of(namespace) for namespace in known if namespace.state in READY or half_formed(namespace)
    ]
    if all(namespace.id != ORIGINAL for namespace in known):
        there.append(Placement())
    others = sorted(
        (placement for placement in there if placement != live),
        key=lambda placement: (placement.memory != placement.pipeline, placement.memory),
    )
    first = {other.pipeline: other for other in reversed(others) if other.pipeline != live.pipeline}
    return Beside(
        silent=tuple(other for other in others if other not in first.values()),
        forgetting=tuple(other for other in others if other in first.values()),
        sweeping=tuple(
            placement_of(namespace)
            for namespace in known
            if namespace.kind == "rebuild" and namespace.state == "filling"
        ),
    )


def half_formed(namespace: Namespace) -> bool:
    """A reform that is being formed, or was left."""
    return namespace.kind == "reform" and namespace.state == "filling"


def neglected(
    live: Placement, namespaces: Iterable[Namespace], unrestored: Collection[str]
) -> list[Namespace]:
    """Those in which what is forgotten stays until they go on, or go; `unrestored` are names of reforms.

    Rebuilds of a pipeline that nobody forgets in: of a memory that is not whole it is not known what rests on what.
    """
    known = list(namespaces)
    tended = {live.pipeline, *(placement.pipeline for placement in beside(live, known).forgetting)}
    return [
        namespace
        for namespace in known
        if namespace.state == "filling" and (namespace.id in unrestored or namespace.pipeline not in tended)
    ]


def placement_of(namespace: Namespace) -> Placement:
    """Where a namespace's memory and pipeline are."""
    return Placement(namespace.id, namespace.pipeline)


def goes_on(namespace: Namespace) -> str:
    """Return, for people, the commands that complete or remove a namespace that is not complete."""
    return f"`eden {namespace.kind} {namespace.id}` goes on, `eden namespace drop {namespace.id}` removes it"
