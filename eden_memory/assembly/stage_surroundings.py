"""What the stages of a placement share: connections, ledger, controls."""

from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.forgetting.ledger_store import ForgottenLedgers
from eden_memory.forgetting.mark_store import MongoForgetting
from eden_memory.kafka.connection import client_kwargs
from eden_memory.kafka.topics import load_topics
from eden_memory.local.servers import endpoints
from eden_memory.schemas.events import REGISTRY
from eden_memory.settings import Settings
from eden_memory.stages.controls import MongoControls, MongoGroupNotes
from eden_memory.stages.dead_letter_store import DeadLetters
from eden_memory.stages.handler_run import USAGE_SOURCE, UsageLog
from eden_memory.stages.outcome import Publishing
from eden_memory.stages.outcome_store import MongoLedger
from eden_memory.stages.slots import Slots
from eden_memory.stages.worker import Bounds, Surroundings


def surroundings(
    settings: Settings, database: AsyncDatabase[dict[str, Any]], publisher: Publishing, bounds: Bounds
) -> Surroundings:
    """Return what the stages of the placement in `settings` share."""
    topics, names = load_topics(settings.kafka, settings.placement), settings.names
    marks = MongoForgetting(database, names)
    return Surroundings(
        kafka=client_kwargs(settings.kafka, endpoints(settings).kafka),
        topic_of=topics.topic_of,
        group_of=topics.group,
        registry=REGISTRY,
        publisher=publisher,
        ledger=MongoLedger(database, names),
        notes=MongoGroupNotes(database, names),
        controls=MongoControls(database, names),
        slots=Slots(settings.run.at_once),
        letters=DeadLetters(database, names, marks, settings.placement),
        usage=UsageLog(publisher, topics.topic_of, USAGE_SOURCE),
        end_published=ForgottenLedgers(database, names, marks, settings.placement.pipeline).end_published,
        bounds=bounds,
    )
