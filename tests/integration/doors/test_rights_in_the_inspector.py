"""The inspector shows memory to keys that may read it, and to keys for some users no text of anybody else."""

from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from eden_memory.mongo.documents import row_of
from eden_memory.schemas.documents import Message as StoredMessage
from eden_memory.schemas.documents import WindowClosing, WindowMessage, WindowTexts
from eden_memory.schemas.provenance import SourceMessage
from tests.integration.doors.conftest import Doors
from tests.integration.doors.world import MARK, fact_id, mark_of
from tests.integration.python.stored import ADA, AGENT, AT, fact, inbox, store

pytestmark = pytest.mark.servers
OF_ADA = "agent=a&user=ada"
MEMORY = {
    "fact": fact_id(ADA),
    "reflection": f"r-{fact_id(ADA)[3:]}",
    "blob": ADA.key,
}
CHANGES = tuple(
    f"/ui/change?{OF_ADA}&what={what}&act={act}&id={quote(name)}"
    for what, name in MEMORY.items()
    for act in ("edit", "forget")
)
PAGES = (
    "/ui",
    "/ui/agents",
    "/ui/agent?agent=a",
    f"/ui/scope?{OF_ADA}&key={quote(ADA.key)}",
    f"/ui/facts?{OF_ADA}&key={quote(ADA.key)}",
    f"/ui/reflections?{OF_ADA}&key={quote(ADA.key)}",
    f"/ui/fact?{OF_ADA}&id={MEMORY['fact']}",
    f"/ui/reflection?{OF_ADA}&id={MEMORY['reflection']}",
    f"/ui/context?{OF_ADA}",
    "/ui/windows",
    "/ui/windows?agent=a&session=alone-a-0",
    "/ui/costs",
    "/ui/costs?by=user",
    "/ui/costs?agent=a",
    "/ui/events",
    f"/ui/events?{OF_ADA}",
    *CHANGES,
)


async def key_for(doors: Doors, name: str, *rights: Any, **bound: Any) -> dict[str, str]:
    """Headers with a new key."""
    secret, _ = await doors.keys.create(name, **({"agents": None, "users": None} | bound), rights=rights)
    return {"X-Eden-Key": secret, "Origin": doors.url}


@pytest.mark.parametrize("bound", [{}, {"agents": ["s.a"]}])
async def test_a_key_that_only_writes_reads_no_page(doors: Doors, bound: dict[str, Any]) -> None:
    writer = await key_for(doors, f"writer-{len(bound)}", "write", **bound)
    reader = await key_for(doors, f"reader-{len(bound)}", "read", "write", **bound)
    for path in PAGES:
        answer = await doors.http.get(path, headers=writer, follow_redirects=True)
        assert (answer.status_code, MARK.findall(answer.text)) == (403, []), path
    for path in CHANGES:
        answer = await doors.http.get(path, headers=reader)
        assert (answer.status_code, mark_of(ADA.key) in answer.text) == (200, True), path
    before = len(await inbox(doors.kit))
    assert (await _asked(doors, CHANGES[0], writer, text="Ada sails.", version="2")).status_code == 303
    assert (await doors.http.get(f"/ui/add?{OF_ADA}", headers=writer)).status_code == 200
    assert len(await inbox(doors.kit)) == before + 1


async def _asked(doors: Doors, path: str, headers: dict[str, str], **form: str) -> httpx2.Response:
    return await doors.http.post(path, data=form, headers=headers)


SAID = {
    "ada-before": ("user", "s.ada", "Ada rows."),
    "bob-before": ("user", "s.bob", "Bob owes money."),
    "answer-to-bob": ("assistant", None, "Bob should pay."),
    "ada-alone": ("user", "s.ada", "Ada sails."),
    "answer-to-ada": ("assistant", None, "Sail on."),
}


async def test_a_fact_shows_no_text_of_one_who_has_left_the_session(doors: Doors) -> None:
    await doors.kit.session("left", ["ada"])
    await doors.kit.session("mine", ["ada"])
    await doors.kit.authors("left", "ada", "bob")
    await doors.kit.authors("mine", "ada")
    sources = [await _window(doors, "left", "ada-before", "bob-before", "answer-to-bob")]
    sources += [await _window(doors, "mine", "ada-alone", "answer-to-ada")]
    rests_on = tuple(source for some in sources for source in some)
    await store(doors.kit, [fact("boats", AGENT, "Boats are popular.", sources=rests_on)])
    ada = await key_for(doors, "ada-reads", "read", agents=["s.a"], users=["s.ada"])
    everybody = await key_for(doors, "all-read", "read")
    assert await _shown(doors, "left", ada) == {"Ada rows.", "Ada sails."}
    assert await _shown(doors, "mine", ada) == {"Ada rows.", "Ada sails.", "Sail on."}
    said = {"Ada rows.", "Bob owes money.", "Bob should pay.", "Ada sails."}
    assert await _shown(doors, "left", everybody) == said


async def _window(doors: Doors, session: str, *names: str) -> list[SourceMessage]:
    """A formed window of these messages."""
    formation, messages, sources = f"s.{session}/1", list[WindowMessage](), list[SourceMessage]()
    everybody = {SAID[name][1] for name in names} - {None}
    for name in names:
        role, user, text = SAID[name]
        part: dict[str, Any] = {"version": "0" * 16, "user_id": user, "time": AT}
        of: dict[str, Any] = {"role": role, "characters": len(text), **part}
        messages.append(WindowMessage(message_id=f"s.{name}", text=text, **of))
        row = StoredMessage(_id=f"s.{name}", session_id=f"s.{session}", formation_id=formation, **of)
        await doors.kit.database["memory_messages"].insert_one(row_of(row))
        sources.append(
            SourceMessage(
                message_id=f"s.{name}", session_id=f"s.{session}", participants=len(everybody), **part
            )
        )
    closed = WindowClosing(because="cold", at=AT)
    texts = WindowTexts(
        _id=formation, session_id=f"s.{session}", seq=1, messages=tuple(messages), closed=closed
    )
    await doors.kit.database["memory_windows"].insert_one(row_of(texts))
    return sources


async def _shown(doors: Doors, session: str, headers: dict[str, str]) -> set[str]:
    answer = await doors.http.get(f"/ui/fact?agent=a&session={session}&user=ada&id=boats", headers=headers)
    assert answer.status_code == 200
    return {text for _, _, text in SAID.values() if text in answer.text}
