"""Sending without servers: what is forgotten at the worst moment, and what is not stored yet."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from eden_memory.schemas.documents import DeadLetter, Webhook, WebhookNotice
from eden_memory.webhooks.receivers import Receivers
from eden_memory.webhooks.webhook_rules import TRIED_FOR, StoredMemory, Told
from eden_memory.webhooks.webhook_sending import WebhookSending
from tests.awaiting import until

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
THERE = StoredMemory(1, "user:s.a:s.ada", retired=False)
WEBHOOK = Webhook(id="w", url="https://93.184.215.14/", on=("facts",), created_at=NOW, created_by="a test")  # pyright: ignore[reportCallIssue]


def notice(**fields: Any) -> WebhookNotice:
    given: dict[str, Any] = {
        "id": "msg_1",
        "webhook_id": "w",
        "type": "memory.changed",
        "kind": "fact",
        "entity_id": "f",
        "version": 1,
        "happened_at": NOW,
        "waits_since": NOW,
        "due": NOW,
    }
    return WebhookNotice(**given | fields)


class Stored:
    """Notices in memory, as `Webhooks` stores them; what waits longer is not due again."""

    def __init__(self, *notices: WebhookNotice) -> None:
        self.rows = {one.id: one for one in notices}
        self.tried: set[str] = set()
        self.done: list[str] = []

    async def webhooks(self) -> list[Webhook]:
        return [WEBHOOK]

    async def waiting(self) -> dict[str, Any]:
        return {}

    async def remove_of(self, webhook_ids: Any) -> None:
        assert not webhook_ids

    async def due(self, webhook_id: str, most: int) -> list[WebhookNotice]:
        return [one for one in self.rows.values() if one.id not in self.tried][:most]

    async def begin(self, one: WebhookNotice, next_at: datetime, *, as_changed: bool) -> bool:
        self.tried.add(one.id)
        noted = {"attempts": one.attempts + 1} | ({"type": "memory.changed"} if as_changed else {})
        self.rows[one.id] = one.model_copy(update=noted)
        return True

    async def postpone(self, one: WebhookNotice, until: datetime, failure: str | None = None) -> None:
        self.tried.add(one.id)

    async def taken(self, one: WebhookNotice) -> None:
        self.done.append(one.id)

    async def drop(self, one: WebhookNotice) -> None:
        del self.rows[one.id]

    async def add(self, notices: Sequence[WebhookNotice]) -> None:
        self.rows |= {one.id: one for one in notices}


class Letters:
    """Dead letters that are put away."""

    def __init__(self) -> None:
        self.put_away: list[DeadLetter] = []

    async def put(self, letters: Sequence[DeadLetter]) -> None:
        self.put_away += letters

    def origin(self, stage: str) -> Any:
        return type("Origin", (), {"program": stage, "stage": stage})

    async def asked(self, program: str) -> list[Any]:
        return []


class Memory:
    """Answers each look by the next of these, the last one for ever; of what is forgotten: gone."""

    def __init__(self, *told: Told) -> None:
        self.told = list(told)

    async def look(self, one: WebhookNotice) -> Told:
        if one.type == "memory.forgotten":
            return "gone"
        return self.told.pop(0) if len(self.told) > 1 else self.told[0]


async def sent(
    monkeypatch: pytest.MonkeyPatch, store: Stored, memory: Memory, letters: Letters | None = None
) -> list[bytes]:
    """The bodies that reach the receiver."""
    came: list[bytes] = []

    async def post(
        _: Any, url: httpx2.URL, addresses: Sequence[str], headers: Mapping[str, str], body: bytes
    ) -> None:
        came.append(body)

    async def secret() -> bytes:
        return b"k" * 32

    monkeypatch.setattr(Receivers, "post", post)
    sending = WebhookSending(store, memory, letters or Letters(), secret, lambda: NOW)  # pyright: ignore[reportArgumentType]
    await sending.round()
    try:
        await until(lambda: store.rows.keys() <= store.tried, "all is tried")
    finally:
        await sending.leave()
    return came


async def test_what_is_forgotten_while_it_is_sent_is_followed_by_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Stored(notice())
    changed, forgotten = await sent(monkeypatch, store, Memory(THERE, THERE, "gone"))
    assert b"memory.changed" in changed
    assert b"memory.forgotten" in forgotten
    assert b"ada" not in forgotten


async def test_what_is_forgotten_while_its_attempt_is_noted_is_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await sent(monkeypatch, Stored(notice()), Memory(THERE, "gone")) == []


async def test_what_a_killed_process_may_have_sent_is_followed_though_it_is_sent_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (forgotten,) = await sent(monkeypatch, Stored(notice(attempts=1)), Memory("gone"))
    assert b"memory.forgotten" in forgotten


async def test_what_is_not_stored_yet_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Stored(notice())
    assert await sent(monkeypatch, store, Memory("awaited")) == []
    assert store.rows
    assert not store.done


async def test_a_memory_of_which_one_version_is_forgotten_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Standing(Memory):
        async def look(self, one: WebhookNotice) -> Told:
            return THERE

    (body,) = await sent(monkeypatch, Stored(notice(type="memory.forgotten")), Standing(THERE))
    assert b"memory.changed" in body


class Forgetting(Memory):
    """Of one version that is forgotten, and then of all: each look answers as stated."""

    async def look(self, one: WebhookNotice) -> Told:
        return self.told.pop(0) if len(self.told) > 1 else self.told[0]


async def test_a_change_that_may_have_arrived_for_one_version_is_followed_when_all_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The receiver skips the id that it knows, so forgetting has one of its own."""
    store = Stored(notice(type="memory.forgotten"))
    await sent(monkeypatch, store, Forgetting(THERE))
    (told,) = store.rows.values()
    assert (told.type, told.attempts) == ("memory.changed", 1)
    again = Stored(told)
    (forgotten,) = await sent(monkeypatch, again, Forgetting("gone"))
    assert b"memory.forgotten" in forgotten
    assert again.rows.keys().isdisjoint({told.id})


async def test_what_is_all_forgotten_while_its_attempt_is_noted_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Stored(notice(type="memory.forgotten"))
    (forgotten,) = await sent(monkeypatch, store, Forgetting(THERE, "gone"))
    assert b"memory.forgotten" in forgotten


async def test_what_is_stored_no_more_while_its_attempt_is_noted_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Stored(notice())
    assert await sent(monkeypatch, store, Memory(THERE, "awaited")) == []
    assert store.rows
    assert not store.done


@pytest.mark.parametrize(("told", "letters"), [("awaited", 0), (THERE, 1)])
async def test_no_notice_waits_longer_than_three_days(
    monkeypatch: pytest.MonkeyPatch, told: Told, letters: int
) -> None:
    store, put_away = Stored(notice(waits_since=NOW - TRIED_FOR - timedelta(seconds=1))), Letters()
    assert await sent(monkeypatch, store, Memory(told), put_away) == []
    assert not store.rows
    assert len(put_away.put_away) == letters
