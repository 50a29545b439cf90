"""About how many documents the memory collections hold."""

import asyncio
from collections.abc import Mapping
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from schemas.documents import DOCUMENTS


async def count_documents(database: AsyncDatabase[dict[str, Any]], prefix: str) -> Mapping[str, int]:
    """By collection, without prefix; from the server's own figures, so cheap."""
    names = sorted({one.COLLECTION for one in DOCUMENTS})
    counts = await asyncio.gather(*(database[prefix + one].estimated_document_count() for one in names))
    return dict(zip(names, counts, strict=True))
