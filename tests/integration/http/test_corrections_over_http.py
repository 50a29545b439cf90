"""Corrections over HTTP: the calls of Python, with the same refusals as problems, and history in the answers."""

from datetime import datetime
from typing import Any

import pytest

from eden_memory.schemas.documents import BlobVersion
from eden_memory.schemas.events import MemoryCommandRef
from tests.integration.doors.conftest import Doors
from tests.integration.doors.world import Key
from tests.integration.http.conftest import ADA, key_of
from tests.integration.http.test_http_api import AGENT, A, code, inbox
from tests.integration.python.stored import AT, blob, reflection, store

pytestmark = pytest.mark.servers
MINE = {"user": "ada"}
PIN = "Never call before nine."
BLOB = f"{A}/blobs/{ADA.key}"
NOTE = f"{A}/reflections/note"


@pytest.fixture
async def stored(api: Doors) -> None:
    """A reflection and a blob of Ada's, each with a command behind it."""
    command = MemoryCommandRef(command_id="c", action="pin", by="person", asked_by="mara", asked_at=AT)
    earlier = BlobVersion(version=1, content="Ada likes tea.", absorbed=(), consolidated_at=AT, said_at=AT)
    for name in ("reflections", "consolidated"):
        await api.kit.database["memory_" + name].delete_many({})
    note = reflection("note", ADA, "Ada wants tables.")
    pinned = blob(ADA, f"Ada likes tea.\n{PIN}", pins=(PIN,), command=command, history=(earlier,))
    await store(api.kit, [note, reflection("shared", AGENT, "x"), pinned])
    await api.kit.put(ADA, blob=pinned.content, blob_version=2, pins=(PIN,), active_facts=1)
    await api.kit.put(AGENT, blob="x", blob_version=1)


@pytest.mark.parametrize(
    ("method", "path", "body", "wanted"),
    [
        ("PATCH", NOTE, {"text": "Ada wants lists."}, {"action": "edit_reflection", "reflection_id": "note"}),
        ("POST", f"{NOTE}/retire", {"reason": "old"}, {"action": "retire_reflection", "reason": "old"}),
        ("POST", f"{NOTE}/private", {}, {"action": "edit_reflection", "private": True}),
        ("POST", f"{NOTE}/private", {"private": False}, {"action": "edit_reflection", "private": False}),
        ("PATCH", BLOB, {"text": PIN, "expected_version": 2}, {"action": "edit_blob", "text": PIN}),
        ("POST", f"{BLOB}/pin", {"sentence": "Use tables."}, {"action": "pin", "text": "Use tables."}),
        ("POST", f"{BLOB}/unpin", {"sentence": PIN}, {"action": "unpin", "text": PIN}),
        ("POST", f"{A}/memories", {"text": "x", "verbatim": True}, {"kind": "fact_command", "action": "add"}),
        (
            "POST",
            f"{A}/memories",
            {"text": "x", "verbatim": True, "kind": "reflection"},
            {"kind": "memory_command", "action": "add_reflection"},
        ),
    ],
)
async def test_a_correction_is_accepted_and_stands_in_the_inbox(
    api: Doors, stored: None, method: str, path: str, body: dict[str, Any], wanted: dict[str, Any]
) -> None:
    answer = await api.http.request(method, path, params=MINE, json=body)
    assert answer.status_code == 202, answer.text
    asked = answer.json().get("request_id") or answer.json()["request_ids"][0]
    row = await inbox(api, asked)
    assert {name: row[name] for name in wanted} == wanted
    assert (row["scope"]["key"], row["asked_by"]) == (ADA.key, "http:local")


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PATCH", NOTE, {"text": "x", "expected_version": 7}, 409),
        ("PATCH", BLOB, {"text": PIN, "expected_version": 1}, 409),
        ("PATCH", BLOB, {"text": "Ada likes tea.", "expected_version": 2}, 409),
        ("PATCH", BLOB, {"text": PIN}, 422),
        ("PATCH", BLOB, {"text": f"{PIN} {'x ' * 400}", "expected_version": 2}, 422),
        ("POST", f"{BLOB}/unpin", {"sentence": "Ada likes tea."}, 409),
        ("POST", f"{A}/reflections/none/private", {}, 404),
        ("POST", f"{A}/blobs/user:s.a:s.bob/pin", {"sentence": "x"}, 404),
        ("POST", f"{A}/reflections/shared/retire", {}, 403),
        ("POST", f"{A}/blobs/{AGENT.key}/pin", {"sentence": "x"}, 403),
    ],
)
async def test_what_cannot_be_corrected_is_a_problem(
    api: Doors, stored: None, method: str, path: str, body: dict[str, Any], status: int
) -> None:
    answer = await api.http.request(method, path, params=MINE, json=body)
    assert (answer.status_code, code(answer) != "") == (status, True), answer.text


async def test_a_key_that_only_reads_corrects_nothing(api: Doors, stored: None) -> None:
    headers = await key_of(api, Key("reader-of-corrections", ("s.a",), ("s.ada",), ("read",)))
    for path in (f"{NOTE}/private", f"{NOTE}/retire", f"{BLOB}/pin"):
        body = {"sentence": "x"} if path.endswith("pin") else {}
        answer = await api.http.post(path, params=MINE, json=body, headers=headers)
        assert (answer.status_code, code(answer)) == (403, "refused")


async def test_lists_show_versions_pins_and_who_asked(api: Doors, stored: None) -> None:
    (shown,) = (await api.http.get(f"{A}/blobs", params={**MINE, "scopes": "user"})).json()
    assert (shown["version"], shown["pins"]) == (2, [PIN])
    assert (shown["command"]["action"], shown["command"]["asked_by"]) == ("pin", "mara")
    assert datetime.fromisoformat(shown["command"]["asked_at"]) == AT
    assert [(one["version"], one["pins"], one["command"]) for one in shown["earlier"]] == [(1, [], None)]
    note = (await api.http.get(NOTE, params=MINE)).json()
    assert (note["version"], note["retired_at"], note["earlier"]) == (1, None, [])
    hidden = await api.http.get(NOTE, params={"user": "bob"})
    assert (hidden.status_code, code(hidden)) == (404, "not-found")
