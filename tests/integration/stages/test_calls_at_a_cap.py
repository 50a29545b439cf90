"""What becomes of records whose calls the cap of a reform refuses."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from eden_memory.replay.reform.reform_calls import Capped
from eden_memory.schemas.answers import ConsolidatedText
from eden_memory.stages.stage import Delivery, Result
from eden_memory.stages.worker import Worker
from tests.integration.stages.harness import Bench, answered, questions, running, stage, until
from tests.unit.model_calls.model_fakes import GOOD, PROMPT, FakeChat, MemoryAnswers, asking, model_over

pytestmark = pytest.mark.servers


async def test_several_refused_calls_wait_each_alone_and_pause_nothing(kit: Bench) -> None:
    raised = False
    capped = Capped(MemoryAnswers(), "trial/consolidation:", lambda unit: raised or unit.startswith("s3"))
    provider = FakeChat([GOOD])
    model = model_over(provider, capped, namespace="trial")

    async def consolidating(deliveries: Sequence[Delivery]) -> Result:
        (record,) = deliveries
        question = asking(f"consolidation:{record.id}")
        if await model.earlier(question.unit) is None:
            await model.ask(replace(PROMPT, user=record.id), ConsolidatedText, question)
        return [answered(record)]

    await kit.put(questions(4, 5))
    worker = Worker(stage(consolidating), kit.around())
    async with running(worker):
        await until(lambda: len(provider.asked) == 5, "what has room is asked")
        await until(lambda: len(worker.lanes.waiting_alone()) == 3, "the others wait")
        assert not worker.health.pauses
        assert worker.lanes.waiting_alone()[0].startswith("CapReached: the cap leaves no room")
        raised = True
        await until(lambda: len(provider.asked) == 20, "all is asked")
        await until(lambda: worker.state().what.endswith("caught up"), "all is finished")
