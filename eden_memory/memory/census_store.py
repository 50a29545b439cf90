"""About how many documents the memory collections hold."""

import asyncio
from collections.abc import Mapping
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.names import Names
from eden_memory.schemas.documents import DOCUMENTS


async def count_documents(database: AsyncDatabase[dict[str, Any]], names: Names) -> Mapping[str, int]:
    """By collection, without prefix; from the server's own figures, so cheap."""
    kinds = sorted({one.COLLECTION for one in DOCUMENTS})
    counts = await asyncio.gather(*(database[names[one]].estimated_document_count() for one in kinds))
    return dict(zip(kinds, counts, strict=True))
