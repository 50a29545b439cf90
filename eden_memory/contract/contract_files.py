"""The documents generated from topics.yaml, schemas/ and the settings, and whether those checked in are in step."""

from pathlib import Path

from eden_memory.contract.asyncapi import document_text
from eden_memory.contract.metrics_page import metrics_page
from eden_memory.contract.reference_pages import documents_page, events_page, topics_page
from eden_memory.contract.settings_page import settings_page
from eden_memory.errors import EdenError
from eden_memory.kafka.topics import Topics, read_topics, topics_path
from eden_memory.settings import KafkaSettings

ASYNCAPI = "docs/asyncapi.yaml"


def generated() -> dict[str, str]:
    """Path in the checkout → text. Made with default settings, whatever those of this machine are."""
    topics = Topics(read_topics(topics_path()), KafkaSettings())  # pyright: ignore[reportCallIssue]
    return {
        ASYNCAPI: document_text(topics),
        "docs/reference/documents.md": documents_page(),
        "docs/reference/events.md": events_page(topics),
        "docs/reference/metrics.md": metrics_page(),
        "docs/reference/settings.md": settings_page(),
        "docs/reference/topics.md": topics_page(topics),
    }


def checkout() -> Path:
    """The checkout that this program runs from; an EdenError if it is an installed copy."""
    root = topics_path().parents[1]
    if not (root / "schemas" / "json").is_dir():
        raise EdenError("the contract is exported in a checkout, and this is an installed copy", "Clone it.")
    return root


def stale(root: Path) -> list[str]:
    """Paths whose file under `root` is missing or not in step."""
    return [path for path, text in generated().items() if not _is(root / path, text)]


def write(root: Path) -> list[str]:
    """Write them all; the paths that changed."""
    changed = stale(root)
    for path in changed:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(generated()[path])
    return changed


def _is(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text
