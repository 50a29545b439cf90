"""Which pins of withdrawn blob versions people get back, and which may come from what is forgotten."""

from typing import Any

from eden_memory.forgetting.forgetting_rules import PinnedBlob, WithdrawnPins, restored_pins
from eden_memory.schemas.events import Forgotten, MemoryCommandRef
from eden_memory.schemas.events.facts import By
from eden_memory.schemas.scopes import Scope
from tests.unit.memory.memory_histories import NOON

USER, SESSION = Scope.of_user("s.a", "s.ann"), Scope.of_session("s.a", "s.one", ("s.ann", "s.bob"))
BEFORE = PinnedBlob(1, "Ann rows.", (), None)
ABSORBED = PinnedBlob(2, "Ann rows. Ann has a secret.", (), None)


def version(number: int, action: Any, *pins: str, by: By = "person", text: str = "") -> PinnedBlob:
    command = MemoryCommandRef(command_id=f"c{number}", action=action, by=by, asked_at=NOON)
    return PinnedBlob(number, text or ABSORBED.text, pins, command)


def restored(*withdrawn: PinnedBlob, scope: Scope = USER, own: tuple[str, ...] = (), **fields: Any) -> Any:
    said: dict[str, Any] = {"kind": "message", "id": "s.m", "reach": "for_ever", "because": "asked", **fields}
    forgotten = Forgotten(**said, asked_by="test", forgotten_at=NOON)
    blobs = [WithdrawnPins(scope, (ABSORBED, *withdrawn), BEFORE)]
    commands = restored_pins(forgotten, blobs, own, ["Ann has a secret."])
    return [(command.action, command.text) for command in commands]


def test_the_words_of_whoever_pinned_them_are_pinned_again() -> None:
    assert restored(version(3, "pin", "Call Ann late.")) == [("pin", "Call Ann late.")]


def test_a_sentence_of_the_remaining_text_is_not_pinned_again_as_that_may_be_forgotten_next() -> None:
    assert restored(version(3, "pin", "Ann rows.")) == []


def test_nothing_of_what_is_forgotten_comes_back() -> None:
    other = PinnedBlob(3, f"{ABSORBED.text} She likes its keeper.", (), None)
    for sentence in (
        "Ann has a secret.",
        "ann has a SECRET",
        "It is said: Ann has a secret.",
        "likes its keeper",
    ):
        assert restored(other, version(4, "pin", sentence)) == []


def test_what_is_forgotten_itself_or_imported_is_not_pinned_again() -> None:
    pinned = version(3, "pin", "Call Ann late.")
    assert restored(pinned, kind="blob", id=f"{USER.key}@3") == []
    assert restored(pinned, kind="blob", id=f"{USER.key}@2") == [("pin", "Call Ann late.")]
    assert restored(version(3, "pin", "Call Ann late.", by="import")) == []


def test_own_scopes_and_sessions_of_a_forgotten_user_get_no_pin_back() -> None:
    pinned = version(3, "pin", "Call Ann late.")
    assert restored(pinned, own=(USER.key,)) == []
    assert restored(pinned, scope=SESSION, kind="user", id="s.bob") == []
    assert restored(pinned, kind="user", id="s.bob") == [("pin", "Call Ann late.")]


def test_the_last_word_on_a_pin_counts() -> None:
    pinned = version(3, "pin", "Call Ann late.")
    assert restored(pinned, version(4, "unpin")) == []
    forgotten = Forgotten(
        kind="message", id="s.m", reach="for_ever", because="asked", asked_by=None, forgotten_at=NOON
    )
    before = PinnedBlob(1, "Call Ann late.", ("Call Ann late.",), None)
    kept = PinnedBlob(2, "Call Ann late.", ("Call Ann late.",), None)
    blobs = [WithdrawnPins(USER, (kept, version(3, "unpin")), before)]
    (command,) = restored_pins(forgotten, blobs, (), ())
    assert (command.action, command.text) == ("unpin", "Call Ann late.")
    assert command.command_id == f"repinned/{USER.key}/3/1"
