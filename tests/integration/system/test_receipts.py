"""Receipts of what was forgotten: they tell what, hold no text, and can be held against the stores at any time."""

import json
from pathlib import Path
from typing import Any

import pytest

from eden_memory.mongo.ids import encode_id
from eden_memory.receipts.signing_key import ensured_key
from tests.integration.system.commands import eden
from tests.integration.system.running_system import System

pytestmark = pytest.mark.servers


async def test_a_receipt_tells_what_was_erased_and_is_held_against_the_stores(
    shared: System, tmp_path: Path
) -> None:
    key, file = shared.settings.local.folder / "receipts.key", tmp_path / "receipt.json"
    assert ensured_key(key)
    assert key.stat().st_mode & 0o777 == 0o600
    session = await shared.session("nia")
    said = ["fact user: Nia owns the barge Wigeon.", *(f"note user: Nia likes Wigeon {n}." for n in range(4))]
    names = await shared.told(session, "nia", *said)
    await shared.shows(session, "nia", "<Consolidated>", "Wigeon")
    (fact,) = await shared.memory("facts").find({"user_id": encode_id("nia")}).to_list()
    said_so = await eden(
        shared.settings, "forget", "session", session, "--yes", "--by", "nia", "--receipt", str(file)
    )
    assert "Erased." in said_so
    receipt: dict[str, Any] = json.loads(file.read_text())
    memory: dict[str, Any] = receipt["memories"][0]
    assert (receipt["asked"]["kind"], receipt["asked"]["target"]) == ("session", encode_id(session))
    assert receipt["asked"]["asked_by"] == "nia"
    assert memory["facts"] == [f"{fact['_id']}@1"]
    assert memory["messages"] == sorted(map(encode_id, names))
    assert (len(memory["reflections"]), len(memory["texts"]), bool(memory["blobs"])) == (4, 5, True)
    assert "Wigeon" not in file.read_text()
    assert {one["store"].rpartition(".")[2] for one in receipt["clean"]} >= {"MongoDB", "facts"}
    assert file.stat().st_mode & 0o777 == 0o600
    assert "Nothing that it names is there" in await eden(shared.settings, "forget", "verify", str(file))
    await shared.memory("facts").insert_one({**fact, "active": False})
    with pytest.raises(AssertionError, match=f"facts: {fact['_id']} is there"):
        await eden(shared.settings, "forget", "verify", str(file))
    await shared.memory("facts").delete_one({"_id": fact["_id"]})
    changed: dict[str, Any] = {**receipt, "memories": [{**memory, "facts": []}]}
    file.write_text(json.dumps(changed))
    with pytest.raises(AssertionError, match="not signed by this installation"):
        await eden(shared.settings, "forget", "verify", str(file))
