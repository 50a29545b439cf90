"""People correct what formation has made, from the doors to the context: edited, retired, pinned, and forgotten."""

from typing import Any

import pytest

from eden_memory.errors import Conflict
from eden_memory.formation import consolidation_rules
from eden_memory.memory.memory_views import ReflectionView
from eden_memory.mongo.ids import encode_id
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from tests.awaiting import gives
from tests.integration.system.commands import eden
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import AGENT, System, fast, system, until
from tests.model_server.script import Asked, Said
from tests.model_server.serving import serving

pytestmark = pytest.mark.servers
ANN = Scope.of_user(encode_id(AGENT), encode_id("ann"))
PIN = "Never call Ann before nine."
QUESTION = "What answers does she want, what jokes does she like?"


def without_pins(asked: Asked) -> Said:
    """What messages tell it, but a consolidation leaves out every sentence that is pinned."""
    answer = obey(asked)
    if asked.kind == "consolidation" and isinstance(answer, dict):
        return {"text": "\n".join(line for line in answer["text"].splitlines() if PIN not in line) or "-"}
    return answer


async def reflection(running: System, text: str) -> ReflectionView:
    page = await running.service.list_reflections(user="ann", scopes=["user"])
    return next(one for one in page.items if one.content == text)


async def searched(running: System) -> list[str]:
    """The reflections that a search finds; by default it finds facts alone."""
    options: dict[str, Any] = {"user": "ann", "scopes": ["user"]}
    assert await running.service.search_facts(QUESTION, **options) == []
    found = await running.service.search_facts(QUESTION, **options, kinds=["facts", "reflections"])
    assert {one.kind for one in found} == {"reflection"}
    return [one.content for one in found]


async def blob_version(running: System) -> int:
    return (await running.snapshot(ANN.key)).get("blob_version", 0)


async def test_corrections_hold_through_consolidation_rebuild_and_forgetting(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consolidation_rules, "CONSOLIDATION_SECONDS", 0.0)
    async with serving(without_pins) as models, system(fast(settings, models), models) as running:
        service, session = running.service, await running.session("ann")
        (first,) = await running.told(session, "ann", "note user: Wants long answers.")
        await running.told(session, "ann", "note user: Likes jokes.")
        edited, retired = [
            await reflection(running, text) for text in ("Wants long answers.", "Likes jokes.")
        ]

        await service.edit(edited.reflection_id, "Wants brief answers.", user="ann", expected_version=1)
        await service.retire(retired.reflection_id, user="ann", reason="she told us")
        await eden(running.settings, "pin", ANN.key, PIN, "--user", "ann", "--agent", AGENT)
        await running.shows(
            session, "ann", "Wants brief answers.", PIN, without=["Wants long answers.", "Likes jokes."]
        )
        await service.mark_private(edited.reflection_id, user="ann")

        async def is_private() -> bool:
            return (await service.reflection(edited.reflection_id, user="ann")).version == 3

        await until(is_private, "the third version")
        waiting = await service.list_reflections(user="ann", absorbed=False)
        assert [(one.content, one.private) for one in waiting.items] == [("Wants brief answers.", True)]
        assert await searched(running) == ["Wants brief answers."]
        gone = await service.reflection(retired.reflection_id, user="ann")
        assert gone.command is not None
        assert (gone.retired_at is not None, gone.command.reason) == (True, "she told us")

        await running.told(
            session, "ann", *(f"note user: Wants {what}." for what in ("maps", "tables", "lists"))
        )
        await until(lambda: gives(blob_version(running), 2), "the next consolidation")
        await running.shows(session, "ann", "<Consolidated>", PIN, "Wants maps.", "Wants brief answers.")
        assert "Wants brief answers." in await searched(running), "a blob has absorbed it"
        (blob,) = await service.list_blobs(user="ann", scopes=["user"])
        assert (blob.version, blob.pins, blob.command) == (2, (PIN,), None)
        assert PIN in blob.content
        assert "Likes jokes." not in blob.content
        assert [one.command and one.command.action for one in blob.earlier] == ["pin"]
        with pytest.raises(Conflict, match="absorbed"):
            await service.edit(edited.reflection_id, "Too late.", user="ann")
        await service.edit(ANN.key, f"{blob.content}\nIs a beekeeper.", user="ann", expected_version=2)
        await running.shows(session, "ann", "Is a beekeeper.")
        assert "edit_blob by" in await eden(
            running.settings, "history", ANN.key, "--user", "ann", "--agent", AGENT
        )
        await eden(running.settings, "rebuild", "again", "--verify")  # exit code 1 if anything differs

        await running.forget("message", first)

        async def is_forgotten() -> bool:
            kept = [
                row
                for name in ("reflections", "consolidated", "blobs", "snapshots")
                async for row in running.memory(name).find({"scope_key": ANN.key})
            ]
            return not any(text in repr(kept) for text in ("brief answers", "long answers"))

        await until(is_forgotten, "every version of what rested on it is gone")
        await running.shows(session, "ann", PIN, without=["brief answers"])
        assert "Wants maps." in (left := await searched(running))
        assert "Wants brief answers." not in left


async def test_a_verbatim_text_is_memory_without_a_model(shared: System) -> None:
    await shared.service.add("Zoe's boat is called Tern.", user="zoe", verbatim=True)
    await shared.service.add("Wants maps.", user="zoe", verbatim=True, kind="reflection")
    session = await shared.session("zoe")
    await shared.shows(session, "zoe", "Zoe's boat is called Tern.", "Wants maps.")
    assert await shared.memory("answers").count_documents({"prompt": {"$ne": None}}) == 0, (
        "no model was asked"
    )
    (fact,) = await shared.service.search_facts("What is Zoe's boat called?", user="zoe", top_k=1)
    assert fact.content == "Zoe's boat is called Tern."
    await shared.service.forget("user", "zoe", user="zoe")
    await until(lambda: gives(shared.contents("reflections", user_id=encode_id("zoe")), []), "forgotten")


async def test_a_correction_just_before_the_threshold_delays_no_consolidation(shared: System) -> None:
    eve, session = Scope.of_user(encode_id(AGENT), encode_id("eve")), await shared.session("eve")
    await shared.told(session, "eve", *(f"note user: Wants {what}." for what in ("maps", "tables", "lists")))
    await shared.service.pin(eve.key, PIN, user="eve")
    await shared.shows(session, "eve", PIN)
    page = await shared.service.list_reflections(user="eve", scopes=["user"])
    maps = next(one for one in page.items if one.content == "Wants maps.")
    await shared.service.edit(maps.reflection_id, "Wants globes.", user="eve")
    await shared.shows(session, "eve", "Wants globes.", without=["Wants maps."])
    await shared.told(session, "eve", "note user: Wants charts.")

    async def consolidated() -> bool:
        (blob,) = await shared.service.list_blobs(user="eve", scopes=["user"])
        wanted = (PIN, "globes", "tables", "lists", "charts")
        return blob.version == 2 and all(text in blob.content for text in wanted)

    await until(consolidated, "the fourth reflection leads to a consolidation")


async def test_a_burst_of_reflections_is_in_the_context_to_the_last_one(shared: System) -> None:
    session = await shared.session("joe")
    first, burst = ([f"Wants plan {n}." for n in numbers] for numbers in (range(4), range(4, 24)))

    async def add(texts: list[str]) -> None:
        told = [{"role": "user", "content": text} for text in texts]
        await shared.service.add(told, user="joe", verbatim=True, kind="reflection")

    await add(first)
    await shared.shows(session, "joe", "<Consolidated>", *first, without=["<RecentReflections>"])
    await add(burst)
    await shared.shows(session, "joe", *first, *burst)


@pytest.mark.slow
async def test_pins_outlast_the_forgetting_of_what_the_blob_had_absorbed_before(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consolidation_rules, "CONSOLIDATION_SECONDS", 0.0)
    async with serving(obey) as models, system(fast(settings, models), models) as running:
        service, session, later = running.service, await running.session("ann"), await running.session("ann")

        async def stands(version: int) -> None:
            await until(lambda: gives(blob_version(running), version), f"version {version} of the blob")

        async def pins(*sentences: str) -> None:
            async def so() -> bool:
                blobs = await service.list_blobs(user="ann", scopes=["user"])
                return [blob.pins for blob in blobs] == [sentences]

            await until(so, f"{sentences} are pinned")

        await running.told(session, "ann", *(f"note user: Wants {what}." for what in ("a", "b", "c", "d")))
        await stands(1)
        await service.pin(ANN.key, "Always greet Ann.", user="ann")
        await stands(2)
        secret, *_ = await running.told(
            later, "ann", *(f"note user: Wants {what}." for what in ("salt", "f", "g", "h"))
        )
        await stands(3)
        for version, sentence in enumerate((PIN, "Wants salt."), 4):
            await service.pin(ANN.key, sentence, user="ann")
            await stands(version)
        await service.unpin(ANN.key, "Always greet Ann.", user="ann")
        await pins(PIN, "Wants salt.")

        await running.forget("message", secret)
        await pins(PIN)
        xml = await running.shows(session, "ann", PIN, "Wants a.", "Wants h.", without=["salt"])
        assert PIN in xml[: xml.index("</Consolidated>")]
        kept = [
            row
            for name in ("reflections", "consolidated", "blobs", "snapshots")
            async for row in running.memory(name).find()
        ]
        assert "salt" not in repr(kept)
        commands = {came.key: came.value for came in await running.records("memory.commands")}
        assert not [value for value in commands.values() if value and b"salt" in value]
        await eden(running.settings, "rebuild", "again", "--verify")  # exit code 1 if anything differs
        assert await running.dead() == []
