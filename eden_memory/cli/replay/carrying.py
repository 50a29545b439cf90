"""What people changed in a namespace while it was live, applied again in the one that is live now."""

from datetime import datetime, timedelta
from functools import partial

from eden_memory.assembly.handlers import models_of
from eden_memory.kafka.topics import load_topics
from eden_memory.placement import Placement
from eden_memory.replay.installation import Installation
from eden_memory.replay.user_edits.applied_edits import Applied
from eden_memory.replay.user_edits.edited_fact_store import side
from eden_memory.replay.user_edits.reapplying import apply_own_changes
from eden_memory.replay.user_edits.reapplying_rules import change_of
from eden_memory.replay.user_edits.user_edits import OwnChange
from eden_memory.stages.publishing import Publisher, new_producer

BEFORE = timedelta(minutes=5)
"""What was asked for just before a switch may have been carried out after it."""


async def carry(at: Installation, of: Placement, to: Placement, since: datetime) -> Applied:
    """Give `to` the commands that people gave to `of` since then; what is there already is left as it is.

    Safe to repeat. They are carried out by `eden run`. EdenError where no texts can be embedded.
    """
    settings = at.settings.placed(to)
    models = await models_of(settings, at.database.client)
    publisher = Publisher(partial(new_producer, at.client))
    try:
        await publisher.start()
        model, prefix = models.embedder.model, settings.mongodb.prefix
        return await apply_own_changes(
            side(at.database, of.names(prefix), model),
            side(at.database, to.names(prefix), model),
            models.embedder,
            publisher,
            load_topics(settings.kafka, to).topic_of,
            theirs=partial(_given_there, since=since - BEFORE),
        )
    finally:
        await publisher.stop()
        await models.close()


def _given_there(change: OwnChange, since: datetime) -> bool:
    """Not one that was applied again from elsewhere."""
    return change.at >= since and change_of(change.command.command_id) is None
