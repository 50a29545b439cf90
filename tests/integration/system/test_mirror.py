"""`eden mirror` on a running system: from chat writes to files, and from edits of files to the context."""

import asyncio
import hashlib
import random
import stat
import subprocess
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from pymongo.errors import AutoReconnect

from eden_memory.errors import Conflict, EdenError
from eden_memory.files.mirror_folder import MARKER, MirrorFolder, ScopeFile, SealedNotes
from eden_memory.files.mirror_page import Merged, MirroredItem, MirrorLine, parsed, rendered
from eden_memory.files.mirroring import MirroredMemory
from eden_memory.mongo.ids import encode_id
from tests.integration.system.commands import kill, start
from tests.integration.system.mirror_kit import SECONDS, Mirror
from tests.integration.system.running_system import AGENT, System, until

pytestmark = pytest.mark.servers


@pytest.fixture
def mirror(shared: System, tmp_path: Path) -> Mirror:
    return Mirror(shared, tmp_path / "notes", f"user-{uuid4().hex[:6]}")


async def filled(mirror: Mirror, *facts: str) -> str:
    """Facts out of a chat; the session."""
    session = await mirror.running.session(mirror.user)
    await mirror.running.told(session, mirror.user, *(f"fact user: {one}" for one in facts))
    return session


async def stops(task: asyncio.Task[None], match: str) -> None:
    with pytest.raises(Conflict, match=match):
        await asyncio.wait_for(asyncio.shield(task), SECONDS)


async def test_a_chat_becomes_a_file_and_edits_of_the_file_become_the_context(mirror: Mirror) -> None:
    running, user = mirror.running, mirror.user
    session = await running.session(user)
    async with mirror.open():
        await mirror.shows("## Facts")
        await running.told(
            session, user, "fact user: Has a boat.", "fact user: Has a dog.", "note user: Wants maps."
        )
        await mirror.shows_facts("Has a boat.", "Has a dog.")
        await mirror.shows("- Wants maps. <!--")
        assert stat.S_IMODE(mirror.file.stat().st_mode) == 0o600
        assert stat.S_IMODE(mirror.path.stat().st_mode) == 0o700

        mirror.edit("Has a boat.", "Has a boat called *Tern*.")
        await running.shows(session, user, "Has a boat called *Tern*.", without=["Has a boat."])
        mirror.edit("Wants maps.", "Wants short answers.")
        await running.shows(session, user, "Wants short answers.", without=["Wants maps."])
        mirror.add("Keeps <b>bees</b> & hens.")
        await running.shows(session, user, "bees")
        await mirror.shows("Keeps \\<b>bees\\</b> & hens. <!--")
        await mirror.has("Has a boat called *Tern*.", "Has a dog.", "Keeps <b>bees</b> & hens.")
        line = next(line for line in mirror.text().split("\n") if "Has a dog." in line)
        mirror.edit(f"{line}\n", "")
        await running.shows(session, user, without=["Has a dog."])
        mirror.edit("## Summary\n", "## Summary\n\nLikes boats.\n")
        await running.shows(session, user, "Likes boats.")
        (retired,) = (await running.service.list_facts(user=user, active=False)).items
        history = await running.service.history(retired.fact_id, user=user)
        assert [(one.action, one.by) for one in history.versions] == [("retire", "mirror"), (None, None)]
        (blob,) = await running.service.list_blobs(user=user, scopes=["user"])
        assert blob.command is not None
        assert (blob.content, blob.version, blob.command.by) == ("Likes boats.", 1, "mirror")
        await running.service.pin(blob.scope.key, "Likes boats.", user=user)
        await mirror.shows("pinned:\n- Likes boats.\n---")
        mirror.edit("Has a boat called *Tern*.", "Has a boat called Skarv.")
        await running.shows(session, user, "Skarv", "Likes boats.")
        await running.service.unpin(blob.scope.key, "Likes boats.", user=user)
        await mirror.shows("## Facts", without="pinned:")
    assert not mirror.conflicts.exists()


async def test_forgotten_memory_leaves_the_files(mirror: Mirror) -> None:
    running, user = mirror.running, mirror.user
    session = await running.session(user)
    (message,) = await running.told(session, user, "fact user: Has a secret.")
    async with mirror.open():
        await mirror.shows_facts("Has a secret.")
        await running.forget("message", message)
        await mirror.shows("## Facts", without="secret")
    left = [path for path in mirror.path.rglob("*") if path.is_file() and names_it(path.read_bytes())]
    assert left == []


def names_it(content: bytes) -> bool:
    """Return whether a file holds the text, or a hash of it that anybody could make."""
    text = b"Has a secret."
    hashed = (hashlib.new(name, text).hexdigest() for name in ("md5", "sha1", "sha256", "blake2b"))
    return b"secret" in content or any(digest[:16].encode() in content for digest in hashed)


async def test_changes_on_both_sides_are_shown_as_a_conflict(mirror: Mirror) -> None:
    await filled(mirror, "Has a boat.", "Has a dog.")
    async with mirror.open():
        await mirror.shows_facts("Has a boat.", "Has a dog.")
    service = mirror.running.service
    facts = (await service.list_facts(user=mirror.user)).items
    fact = next(one for one in facts if one.content == "Has a boat.")
    await service.edit(fact.fact_id, "Has two boats.", user=mirror.user)
    await mirror.has("Has a dog.", "Has two boats.")
    mirror.edit("Has a boat.", "Has a red boat.")
    mirror.add("x" * 3_000)
    async with mirror.open(new=False):
        await mirror.shows_facts("Has two boats.", "Has a dog.")
    shown = mirror.conflicts.read_text()
    assert f"it has changed meanwhile: Has a red boat. <!-- {fact.fact_id} -->" in shown
    assert f"too long: {'x' * 3_000} <!-- new -->" in shown
    assert shown.count("\n- ") == 2
    assert stat.S_IMODE(mirror.conflicts.stat().st_mode) == 0o600
    await service.forget("fact", fact.fact_id, user=mirror.user)
    async with mirror.open(new=False):
        await mirror.shows_facts("Has a dog.")

        async def is_dropped() -> bool:
            return "red boat" not in mirror.conflicts.read_text()

        await until(is_dropped, "what is forgotten is no conflict", SECONDS)


async def test_the_file_of_a_small_scope_is_retired_and_never_forgotten(mirror: Mirror) -> None:
    await filled(mirror, "Has a boat.", "Has a dog.")
    async with mirror.open():
        await mirror.shows_facts("Has a boat.", "Has a dog.")
        mirror.file.unlink()
        await mirror.has()
    retired = (await mirror.running.service.list_facts(user=mirror.user, active=False)).items
    assert {one.content for one in retired} == {"Has a boat.", "Has a dog."}


async def test_much_that_vanishes_at_once_is_asked_about(mirror: Mirror) -> None:
    facts = [f"Has boat {number}." for number in range(6)]
    await filled(mirror, *facts)
    async with mirror.open() as task:
        await mirror.shows_facts(*facts)
        mirror.file.unlink()
        await stops(task, "6 of")
    async with mirror.open(new=False) as task:
        await stops(task, "6 of")
    await mirror.has(*facts)
    async with mirror.open(new=False, restore=True):
        await mirror.shows_facts(*facts)
    mirror.file.unlink()
    async with mirror.open(new=False, accept=True):
        await mirror.has()


async def test_restoring_goes_on_after_an_outage(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(mirror, "Has a boat.")
    async with mirror.open():
        await mirror.shows_facts("Has a boat.")
    mirror.edit("boat", "ship")
    forgotten, fails = MirroredMemory.forgotten, iter([AutoReconnect("failover")])

    async def sometimes(memory: MirroredMemory, scope_key: str, ids: Collection[str]) -> set[str]:
        for error in fails:
            raise error
        return await forgotten(memory, scope_key, ids)

    monkeypatch.setattr(MirroredMemory, "forgotten", sometimes)
    async with mirror.open(new=False, restore=True):
        await mirror.shows_facts("Has a boat.")
    assert list(fails) == []
    await mirror.has("Has a boat.")


async def test_a_folder_that_is_gone_or_unmarked_retires_nothing(mirror: Mirror) -> None:
    await filled(mirror, "Has a boat.")
    async with mirror.open() as task:
        await mirror.shows_facts("Has a boat.")
        mirror.path.rename(mirror.path.with_name("unmounted"))
        mirror.path.mkdir()
        await stops(task, "no marker")
    with pytest.raises(Conflict, match="no marker"):
        async with mirror.open(new=False):
            pass
    mirror.path.rmdir()
    mirror.path.with_name("unmounted").rename(mirror.path)
    async with mirror.open(new=False) as task:
        (mirror.path / MARKER).rename(mirror.path.with_name("marker"))
        await stops(task, "no marker")
    await mirror.has("Has a boat.")


async def test_another_branch_is_asked_about(mirror: Mirror) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments]
        return subprocess.run(command, cwd=mirror.path, check=True, capture_output=True, text=True).stdout

    await filled(mirror, "Has a boat.")
    async with mirror.open():
        await mirror.shows_facts("Has a boat.")
    git("init", "-b", "main")
    git("add", ".")
    git("commit", "-m", "first")
    async with mirror.open(new=False):
        await filled(mirror, "Has a dog.")
        await mirror.shows_facts("Has a boat.", "Has a dog.")
        git("commit", "-am", "second")
        git("branch", "other", "HEAD~1")
    async with mirror.open(new=False) as task:
        git("checkout", "other")
        await stops(task, "another git branch")
    assert mirror.texts() == ["Has a boat."]
    await mirror.has("Has a boat.", "Has a dog.")
    assert MARKER not in git("ls-files")
    async with mirror.open(new=False, accept=True):
        await mirror.shows_facts("Has a boat.", "Has a dog.")


@pytest.mark.parametrize("broken", ["", "---\nscope: x\n---\n\n## Facts\n"])
async def test_an_unfinished_file_is_asked_about(mirror: Mirror, broken: str) -> None:
    await filled(mirror, "Has a boat.")
    async with mirror.open() as task:
        await mirror.shows_facts("Has a boat.")
        mirror.save(broken)
        await stops(task, "lost its front matter")
    await mirror.has("Has a boat.")


async def test_two_mirrors_or_users_do_not_share_a_folder(mirror: Mirror) -> None:
    async with mirror.open():
        with pytest.raises(Conflict, match="another process"):
            async with mirror.open(new=False):
                pass
    other = Mirror(mirror.running, mirror.path, "somebody-else")
    with pytest.raises(Conflict, match="other memory"):
        async with other.open(new=False):
            pass


async def test_changes_of_both_sides_in_any_order_meet_and_nothing_is_lost(mirror: Mirror) -> None:
    """Seeded: edits, additions and deletions in the file and at the door, while the mirror is stopped and started."""
    chance, service, user = random.Random(7), mirror.running.service, mirror.user
    said = {f"Began with {number}." for number in range(4)}
    await filled(mirror, *said)
    for turn in range(6):
        async with mirror.open(accept=True):
            await mirror.shows("## Facts", "<!-- end -->")
            for number in range(5):
                text = f"Turn {turn} change {number} {chance.random():.6f}."
                added, removed = _change_file(mirror, chance, text)
                said = said - removed | added
                facts = (await service.list_facts(user=user)).items
                with suppress(EdenError):
                    if facts and chance.random() < 0.5:
                        text = f"Door {turn} {number}."
                        await service.edit(chance.choice(facts).fact_id, text, user=user)
                    elif facts and chance.random() < 0.3:
                        await service.retire(chance.choice(facts).fact_id, user=user)
                await asyncio.sleep(chance.random() * 0.4)
        mirror.add(f"Turn {turn} while closed.")
        said.add(f"Turn {turn} while closed.")
    async with mirror.open(accept=True):
        await _at_rest(mirror)
        rows = await mirror.running.memory("facts").find({"user_id": encode_id(user)}).to_list()
    stored = {one["content"] for row in rows for one in (row, *row["history"])}
    shown = mirror.conflicts.read_text() if mirror.conflicts.exists() else ""
    assert [text for text in said if text not in stored and text not in shown] == []


def _change_file(mirror: Mirror, chance: random.Random, text: str) -> tuple[set[str], set[str]]:
    """Change the file as an editor would; the texts that this adds and removes."""
    page = parsed(mirror.text())
    assert page is not None
    lines = list(page.lines)
    known = [number for number, line in enumerate(lines) if line.kind == "fact" and line.id is not None]
    what = chance.choice(["add", "edit", "delete"])
    if what == "delete" and known:
        del lines[chance.choice(known)]
    elif what == "edit" and known:
        number = chance.choice(known)
        lines[number] = replace(lines[number], text=text)
    else:
        lines.append(MirrorLine("fact", None, text))
    mirror.save(rendered(replace(page, lines=tuple(lines))))
    before, after = {line.text for line in page.lines}, {line.text for line in lines}
    return after - before, before - after


async def _at_rest(mirror: Mirror) -> None:
    """Until file and memory hold the same, and nothing changes any more."""

    async def same() -> bool:
        before = mirror.text()
        await asyncio.sleep(1.5)
        facts = await mirror.running.facts(mirror.user)
        return (before, facts) == (mirror.text(), sorted(mirror.texts()))

    await until(same, f"{mirror.texts()} at rest", SECONDS)


@pytest.mark.slow
async def test_a_mirror_killed_at_any_moment_doubles_and_loses_nothing(
    mirror: Mirror, tmp_path: Path
) -> None:
    running, user, chance = mirror.running, mirror.user, random.Random(11)
    await filled(mirror, "Began.")
    MirrorFolder(mirror.path, f"{running.settings.mongodb.database}, agent s.{AGENT}, user s.{user}").create()
    command = ("mirror", str(mirror.path), "--user", user, "--agent", AGENT)
    wanted = {"Began."}
    for number in range(5):
        process = await start(running.settings, tmp_path / "mirror.log", *command)
        try:
            await mirror.shows("<!-- end -->")
            for part in range(3):
                text = f"Added {number} {part}."
                mirror.add(text)
                wanted.add(text)
                await filled(mirror, f"Said {number} {part}.")
                wanted.add(f"Said {number} {part}.")
            old = chance.choice(sorted(wanted & set(mirror.texts())))
            await asyncio.sleep(chance.random() * 1.5)
        finally:
            await kill(process)
        if f"{old} <!--" in mirror.text():  # a line without its id, edited, is another addition
            mirror.edit(old, f"Edited {number}.")
            wanted = wanted - {old} | {f"Edited {number}."}
    process = await start(running.settings, tmp_path / "mirror.log", *command)
    try:
        await mirror.shows_facts(*wanted)
        await mirror.has(*wanted)
    finally:
        await kill(process)
    assert not mirror.conflicts.exists(), mirror.conflicts.read_text()
    log = (tmp_path / "mirror.log").read_text()
    assert "Added" not in log


async def test_what_vanished_while_no_mirror_ran_is_removed_at_the_start(mirror: Mirror) -> None:
    await filled(mirror, "Has a boat.")
    folder = MirrorFolder(mirror.path, mirror.user)
    folder.create()
    left = ScopeFile(
        mirror.path, folder.own, f"group:{encode_id(AGENT)}:s.left-{mirror.user}", SealedNotes(b"x" * 32)
    )
    merged = Merged()
    merged.show(MirroredItem("fact", "f1", 1, "The group's secret."))
    left.write(None, merged)
    mirror.conflicts.write_text("- my own words <!-- blob@x -->\n")
    async with mirror.open(new=False) as task:
        await mirror.shows("Has a boat.")
        await mirror.running.told(
            await mirror.running.session(mirror.user), mirror.user, "fact user: Has a dog."
        )
        await mirror.shows("Has a dog.")
        assert not task.done()
    assert not left.path.exists()
    assert "secret" not in "".join(path.read_text() for path in mirror.path.rglob("*") if path.is_file())
    assert mirror.conflicts.read_text() == "- my own words <!-- blob@x -->\n"
