"""Optional packages: an import that fails says which extra to install."""

from collections.abc import Generator
from contextlib import contextmanager

from eden_memory.errors import EdenError


@contextmanager
def needs_extra(what: str, extra: str) -> Generator[None]:
    """Raise an EdenError with the install command where a package of an extra is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("eden_memory"):
            raise
        raise EdenError(
            f"{what} needs the package {error.name}", f'Run: pip install "eden-memory[{extra}]"'
        ) from None
