"""How a namespace is named, and what belongs to it. Pure."""

import re

from eden_memory.domain.errors import EdenError
from eden_memory.domain.names import MEMORY
from eden_memory.domain.placement import ORIGINAL, Placement, collections_of
from schemas.documents import Consolidated, Document, Fact, Namespace, Reflection, Snapshot, StoredBlob

KINDS: tuple[type[Document], ...] = (Fact, Reflection, Consolidated, StoredBlob, Snapshot)
"""What the writer writes, and all that is compared."""
COLLECTIONS = (*sorted(MEMORY), "controls")
"""All that a namespace has, without its prefix: memory, and what its reader keeps."""
WRITER = "atlas-writer"
_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
RESERVED = ("live", ORIGINAL)


def checked(name: str) -> str:
    """The name itself; an EdenError where it could be mistaken for something else."""
    if name in RESERVED or not _NAME.fullmatch(name):
        raise EdenError(
            f"{name!r} cannot name a namespace",
            f"Lower-case letters, digits and hyphens, a letter first, at most 32; neither of {RESERVED}.",
        )
    return name


def prefix_of(live: str, name: str) -> str:
    """The prefix of a namespace's collections: never that of another's, as no name has an underscore."""
    return live + collections_of(checked(name))


def stage_of(name: str) -> str:
    """The name of the writer that fills a namespace; its group is this behind the groups' prefix."""
    return f"{WRITER}.{checked(name)}"


def placement_of(namespace: Namespace) -> Placement:
    """Where a namespace's memory and pipeline are."""
    return Placement(namespace.id, namespace.pipeline)
