"""Memory formed from chat in one installation is exported, and is the same memory in another one."""

import json
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import jsonschema
import pytest

from eden_memory.formation import consolidation_rules
from eden_memory.mongo.ids import encode_id
from eden_memory.replay.rebuild.document_comparing import MemoryComparison
from eden_memory.schemas.export import export_schema
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from tests.awaiting import gives
from tests.integration.system.commands import eden
from tests.integration.system.conftest import shared_settings as shared_settings  # noqa: PLC0414
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import AGENT, System, fast, stages, system, until
from tests.integration.system.test_restored_from_nothing import settled
from tests.model_server.script import Asked, Said
from tests.model_server.serving import Serving, serving

pytestmark = pytest.mark.servers
ANN = Scope.of_user(encode_id(AGENT), encode_id("ann"))
PIN = "Never call Ann before nine."
AGES = re.compile(r" \((?:[^()]* ago|just now)\)$", re.MULTILINE)
MEMORY = ("facts", "reflections", "consolidated", "blobs", "snapshots")


@pytest.fixture(scope="module")
def asked() -> list[Asked]:
    """Every question to a model."""
    return []


@pytest.fixture(scope="module")
async def models(asked: list[Asked]) -> AsyncGenerator[Serving]:
    """A model for both installations."""

    def script(one: Asked) -> Said:
        asked.append(one)
        return obey(one)

    async with serving(script) as served:
        yield served


@pytest.fixture(scope="module")
async def lived(shared_settings: Settings, models: Serving) -> AsyncGenerator[System]:
    """A life of two users: contradicted, consolidated, corrected by people, forgotten, and a session ended."""
    async with system(fast(shared_settings, models), models, run=False) as one:
        async with stages(one.settings):
            first = await one.session("ann", id="first")
            second = await one.session("bob", id="second")
            await one.told(first, "ann", "fact user: Ann keeps nine bees.", "note user: Likes tables.")
            await one.told(first, "ann", "note session: It is about bees.")
            await one.told(first, "ann", "fact user: Ann lives in Tarn same-home.")
            await one.told(first, "ann", "fact user: Ann lives in Albi instead, same-home.")
            (gone,) = await one.told(first, "ann", "fact user: Ann has a red bicycle.")
            await one.told(
                first, "ann", *(f"note user: Wants {what}." for what in ("brief", "jokes", "maps"))
            )
            await until(lambda: _blob_is(one, 1), "consolidated")
            await one.service.pin(ANN.key, PIN, user="ann")
            await until(lambda: _blob_is(one, 2), "pinned")
            await one.told(first, "ann", "note user: Wants lists.")
            (lists,) = (await one.service.list_reflections(user="ann", absorbed=False, scopes=["user"])).items
            await one.service.mark_private(lists.reflection_id, user="ann")
            await until(lambda: _private(one, lists.reflection_id), "private")
            await one.write(
                second, "bob", "fact user: Bob sails the Tern.", "note session: It is about boats."
            )
            await one.end(second)
            await until(lambda: _closed(one), "the second session is consolidated")
            await one.forget("message", gone)
            await until(lambda: gives(one.contents("facts", content={"$regex": "bicycle"}), []), "forgotten")
            await settled(one)
        yield one


async def _blob_is(one: System, version: int) -> bool:
    return (await one.snapshot(ANN.key)).get("blob_version") == version


async def _private(one: System, name: str) -> bool:
    return (await one.service.reflection(name, user="ann")).private


async def _closed(one: System) -> bool:
    return (await one.snapshot(f"session:{encode_id('second')}")).get("blob_version") == 1


async def _copy(source: System, target: System) -> None:
    """Put the source's memory beside the target's."""
    for name in MEMORY:
        out = {"$out": {"db": target.database.name, "coll": f"from_{name}"}}
        await (await source.memory(name).aggregate([out])).to_list()


async def _differences(source: System, target: System) -> list[str]:
    await _copy(source, target)
    comparing = MemoryComparison(target.database, "from_", "memory_")
    compared = await comparing.whole()
    assert all(compared.counts[name] for name in MEMORY)
    return list(map(str, compared.differing.values()))


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_an_export_is_the_same_memory_in_another_installation(
    lived: System,
    elsewhere: Settings,
    asked: list[Asked],
    models: Serving,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consolidation_rules, "CONSOLIDATION_SECONDS", 0.0)
    file = tmp_path / "memory.jsonl"
    said = await eden(lived.settings, "export", str(file))
    lines, validator = _lines(file), cast("Any", jsonschema.Draft202012Validator(export_schema()))
    for line in lines:
        validator.validate(line)
    assert f"{len(lines) - 2:,} records" in said
    assert "bicycle" not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0

    asked.clear()
    async with system(fast(elsewhere, models), models) as other:
        before = await lived.context("first", "ann")
        await other.session("ann", id="first")
        await eden(other.settings, "import", "eden", str(file), "--yes")
        await settled(other)
        assert await _differences(lived, other) == []
        facts = [row["_id"] for row in await lived.memory("facts").find({"user_id": "s.ann"}).to_list()]
        for name in facts:
            assert str(await other.service.history(name, user="ann")) == str(
                await lived.service.history(name, user="ann")
            )
        await eden(other.settings, "rebuild", "again", "--verify")  # exit code 1 if anything differs
        xml = await other.context("first", "ann")
        assert AGES.sub("", xml) == AGES.sub("", before)
        assert PIN in xml
        found = [await one.service.search_facts("Ann lives in Albi", user="ann") for one in (lived, other)]
        assert str(found[0]) == str(found[1])
        assert "Ann lives in Albi instead, same-home." in [fact.content for fact in found[1]]
        assert [one.kind for one in asked] == [], "no model was asked"

        ends = await _ends(other)
        assert "taken: nothing" in await eden(other.settings, "import", "eden", str(file), "--yes")
        assert await _ends(other) == ends

        await other.told("first", "ann", *(f"note user: Wants {what}." for what in ("tea", "rye", "figs")))
        await until(lambda: _blob_is(other, 3), "formation goes on: the next version of the blob")
        await other.shows("first", "ann", PIN, "Wants lists.", "Wants tea.")


async def _ends(one: System) -> int:
    return sum([len(await one.records(f"memory.{name}")) for name in (*MEMORY[:2], "consolidations")])


async def test_a_user_is_exported_without_others(lived: System, tmp_path: Path) -> None:
    await eden(lived.settings, "export", "--user", "ann", str(tmp_path / "ann.jsonl"))
    scopes = {line["scope"] for line in _lines(tmp_path / "ann.jsonl")[1:-1]}
    assert scopes == {ANN.key, f"session:{encode_id('first')}"}
    await eden(lived.settings, "export", "--agent", AGENT, "--user", "bob", str(tmp_path / "bob.jsonl"))
    assert "Ann" not in (tmp_path / "bob.jsonl").read_text()
    assert "Bob sails the Tern." in (tmp_path / "bob.jsonl").read_text()


async def test_what_was_forgotten_here_before_does_not_come_back(
    lived: System, elsewhere: Settings, models: Serving, tmp_path: Path
) -> None:
    """A forgotten contradiction lets the older fact hold again; a blob that absorbed it is made anew without it."""
    file = tmp_path / "memory.jsonl"
    await eden(lived.settings, "export", str(file))
    texts = {row["content"]: row["message_ids"][0] for row in await lived.memory("facts").find().to_list()}
    texts |= {
        row["content"]: row["message_ids"][0] for row in await lived.memory("reflections").find().to_list()
    }
    hidden = [texts["Ann lives in Albi instead, same-home."], texts["Wants jokes."]]
    async with system(fast(elsewhere, models), models) as other:
        for message in hidden:
            await other.forget("message", message.removeprefix("s."))
        marks = other.memory("forgotten")
        await until(lambda: gives(marks.count_documents({"target": {"$in": hidden}}), 2), "marked")
        await other.session("ann", id="first")
        said = await eden(other.settings, "import", "eden", str(file), "--yes")
        assert "it was forgotten here" in said
        await until(lambda: _blob_is(other, 3), "the blob is made anew")
        await settled(other)
        assert await other.facts("ann") == ["Ann keeps nine bees.", "Ann lives in Tarn same-home."]
        xml = await other.shows("first", "ann", "Wants maps.", "Wants lists.", without=["jokes", "Albi"])
        assert "Likes tables." in xml
        for name in MEMORY:
            held = repr(await other.memory(name).find().to_list())
            assert not any(text in held for text in ("jokes", "Albi"))
        await eden(other.settings, "rebuild", "again", "--verify")


@pytest.mark.slow
async def test_a_scope_that_holds_something_gets_commands(
    lived: System, elsewhere: Settings, models: Serving, tmp_path: Path
) -> None:
    file = tmp_path / "memory.jsonl"
    await eden(lived.settings, "export", str(file))
    async with system(fast(elsewhere, models), models) as other:
        session = await other.session("ann", id="another")
        await other.told(session, "ann", "fact user: Ann has a red kayak.")
        asked = await eden(other.settings, "import", "eden", str(file), "--dry-run")
        assert "scopes that hold memory here already: 1; added to them by commands: " in asked
        await eden(other.settings, "import", "eden", str(file), "--yes")
        await settled(other)
        said = ["Ann has a red kayak.", "Ann keeps nine bees.", "Ann lives in Albi instead, same-home."]
        assert await other.facts("ann") == said
        (bees,) = await other.memory("facts").find({"content": said[1]}).to_list()
        (first,) = await lived.memory("facts").find({"content": said[1]}).to_list()
        assert (bees["version"], bees["command"]["by"], bees["said_at"]) == (1, "import", first["said_at"])
        assert bees["session_ids"] == first["session_ids"]
        waiting = {"scope_key": ANN.key, "absorbed": False}
        assert await other.contents("reflections", **waiting) == ["Wants lists."]
        (lists,) = await other.memory("reflections").find(waiting).to_list()
        assert (lists["private"], lists["session_ids"]) == (True, ["s.first"])
        snapshot = await other.snapshot(ANN.key)
        assert (snapshot["blob_version"], PIN in snapshot["blob"]) == (1, True)
        assert await other.facts("bob") == ["Bob sails the Tern."], "its scope held nothing"
        ends = await _ends(other)
        await eden(other.settings, "import", "eden", str(file), "--yes")
        await settled(other)
        assert await _ends(other) == ends
        await eden(other.settings, "rebuild", "again", "--verify")


@pytest.mark.slow
async def test_a_group_that_holds_something_shares_what_it_gets_and_forgets_it_with_its_author(
    settings: Settings, elsewhere: Settings, models: Serving, tmp_path: Path
) -> None:
    file = tmp_path / "memory.jsonl"
    crew = Scope.of_group(encode_id(AGENT), encode_id("crew"))
    async with system(_with_groups(settings, models), models) as one:
        both = await _crew(one)
        await one.told(both, "ann", "fact group: The boat is Tern.", "note group: The crew rows at six.")
        await one.told(both, "bob", "fact group: The oars are red.", "note group: The crew likes rain.")
        await settled(one)
        (tern,) = await one.memory("facts").find({"content": {"$regex": "Tern"}}).to_list()
        await eden(one.settings, "export", str(file))
    async with system(_with_groups(elsewhere, models), models) as other:
        both = await _crew(other)
        await other.told(both, "bob", "fact group: The quay is old.")
        await eden(other.settings, "import", "eden", str(file), "--yes")
        await settled(other)
        bobs = await other.session("bob")
        taken = ["The boat is Tern.", "rows at six", "The oars are red.", "likes rain", "The quay is old."]
        await other.shows(bobs, "bob", *taken)
        (here,) = await other.memory("facts").find({"content": tern["content"]}).to_list()
        own = next(source for source in here["sources"] if source not in tern["sources"])
        assert [source for source in here["sources"] if source != own] == tern["sources"]
        assert own["message_id"].startswith(encode_id("import:eden:")), "undoing the import finds it"
        await other.forget("user", "ann")
        await until(
            lambda: gives(other.contents("facts", scope_key=crew.key), taken[2::2]), "ann is forgotten"
        )
        await other.shows(bobs, "bob", *taken[2:], without=taken[:2])
        await eden(other.settings, "rebuild", "again", "--verify")


def _with_groups(settings: Settings, models: Serving) -> Settings:
    return fast(settings, models, groups={"collection": "groups"})


async def _crew(one: System) -> str:
    """A session of the group of ann and bob."""
    await one.source["groups"].insert_one({"_id": "crew", "name": "The crew", "members": ["ann", "bob"]})
    return await one.session("ann", "bob", group_id="crew")
