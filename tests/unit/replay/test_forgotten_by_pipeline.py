"""What is derived in one pipeline is nothing to another."""

from collections.abc import Sequence
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from eden_memory.forgetting.mark_store import bearing, of_pipeline, own
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import Forgotten
from eden_memory.stages.stage import Decision, Delivery, Emit

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PIPELINES = st.sampled_from(["original", "trial", "trial-2", "t"])
IDS = st.sampled_from(["user:s.a:s.b@3", "0f" * 16, "s.m1"])


def forgotten(name: str, *, derived: bool) -> Forgotten:
    because = "derived" if derived else "asked"
    return Forgotten(kind="fact", id=name, reach="for_ever", because=because, forgotten_at=NOW, asked_by=None)


@given(IDS, PIPELINES, PIPELINES, st.booleans())
def test_a_derived_record_is_read_by_its_own_pipeline_alone(
    name: str, by: str, reader: str, derived: bool
) -> None:
    event = forgotten(name, derived=derived)
    read = own(bearing(event, by), reader)
    assert read == (event if by == reader or not derived else None)


@given(IDS, PIPELINES)
async def test_a_handler_sees_plain_ids_and_publishes_whose_they_are(name: str, pipeline: str) -> None:
    seen: list[Forgotten] = []

    async def handler(deliveries: Sequence[Delivery]) -> Decision:
        events = [one.event for one in deliveries if isinstance(one.event, Forgotten)]
        seen.extend(events)
        return Decision([Emit(forgotten(name, derived=True), identity=f"derived/fact/{name}")])

    told = of_pipeline(handler, pipeline)
    envelope = Envelope(
        id="e", name="Forgotten", version=1, source="t", time=NOW, subject="s", ordering_key="k"
    )
    result = await told([Delivery(envelope, bearing(forgotten(name, derived=True), pipeline), "t", "k")])
    assert isinstance(result, Decision)
    assert [one.id for one in seen] == [name]
    (emitted,) = result.events
    assert isinstance(emitted, Emit)
    assert isinstance(emitted.event, Forgotten)
    assert own(emitted.event, pipeline) == forgotten(name, derived=True)
    assert (pipeline == "original") == (emitted.identity == f"derived/fact/{name}")
