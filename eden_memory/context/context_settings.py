"""What contexts hold, as settings say."""

from datetime import timedelta

from eden_memory.context.context_xml import Showing
from eden_memory.settings import MemorySettings


def showing_of(memory: MemorySettings) -> Showing:
    """The same for contexts that are stored and for those that a process keeps."""
    return Showing(
        always_in_context=memory.always_in_context,
        facts_in_context=memory.facts_in_context,
        facts=memory.context_facts,
        age=timedelta(days=memory.context_days),
    )
