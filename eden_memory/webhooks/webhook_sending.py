"""Send notices to webhooks, one task for each; a part of one process at a time, round after round.

An attempt is noted before it is made, and its notice settled after it: a process that is killed in between sends
again, with the same `webhook-id`. Memory and marks are looked at before each attempt and after it (invariant
mark-read-write-mark): nothing that is forgotten goes out, and what may have arrived is followed by `forgotten`.
"""

import asyncio
from base64 import b64decode
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol

import httpx2
import orjson

from eden_memory.errors import EdenError, describe
from eden_memory.logs import LibraryLogger
from eden_memory.metrics import WEBHOOK_FAILED, WEBHOOK_SENT, WEBHOOK_WAITING
from eden_memory.names import hashed
from eden_memory.schemas.documents import DeadLetter, Webhook, WebhookNotice
from eden_memory.stages.dead_letter_store import DeadLetters
from eden_memory.tasks import all_of, end
from eden_memory.webhooks.receivers import Receivers, checked_url
from eden_memory.webhooks.webhook_rules import (
    SECRET_PREFIX,
    TRIED_FOR,
    StoredMemory,
    Told,
    body_of,
    forgotten_notice,
    pause_after,
    secret_of,
    signed_headers,
)
from eden_memory.webhooks.webhook_store import Webhooks

log = LibraryLogger("eden.webhooks")
STAGE = "webhooks"
ROUND_SECONDS, PAUSE_SECONDS = 0.5, 1.0
AT_ONCE = 8
"""Attempts of one webhook that run at the same time."""
LETTERS_EVERY, COUNTED_EVERY = 4, 20
"""Rounds after which dead letters are looked for that are to be sent again, and waiting notices are counted."""
FAULT_SECONDS = 5.0
BRAKE_SECONDS, LONGEST_BRAKE = 0.5, 60.0
"""The pause of one webhook after it took nothing of what was sent together; it doubles, up to the longest."""


class Tellable(Protocol):
    """The memory that notices are about."""

    async def look(self, notice: WebhookNotice) -> Told:
        """Return what a notice is about, as it stands."""
        ...


class WebhookSending:
    """`secret` reads the installation's secret; `clock` is the wall's."""

    def __init__(
        self,
        store: Webhooks,
        memory: Tellable,
        letters: DeadLetters,
        secret: Callable[[], Awaitable[bytes]],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store, self._memory, self._letters = store, memory, letters
        self._secret, self._clock = secret, clock
        self._receivers: Receivers | None = None
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._rounds = 0
        self._none = False

    async def round(self) -> None:
        """Begin to send what is due, where that is not under way; wait for no receiver.

        While there is no webhook, only each fourth round looks whether there is one.
        """
        if self._none and self._rounds % LETTERS_EVERY:
            self._rounds += 1
            return
        webhooks = {webhook.id: webhook for webhook in await self._store.webhooks()}
        self._none = not webhooks
        await end(task for name, task in self._sending.items() if name not in webhooks)
        self._sending = {name: task for name, task in self._sending.items() if not task.done()}
        if self._rounds % LETTERS_EVERY == 0:
            await self._retry_letters(webhooks)
        if self._rounds % COUNTED_EVERY == 0:
            await self._count()
        self._rounds += 1
        for name in webhooks.keys() - self._sending.keys():
            if await self._store.due(name, 1):
                work = self._send_due(webhooks[name])
                self._sending[name] = asyncio.create_task(work, name=f"webhook {name}")

    async def _count(self) -> None:
        """Count what waits, and remove what a batch under way has stored for a webhook that was just removed."""
        waiting = await self._store.waiting()
        there = {webhook.id for webhook in await self._store.webhooks()}  # read behind its notices
        await self._store.remove_of(waiting.keys() - there)
        WEBHOOK_WAITING.clear()
        for name in there:
            WEBHOOK_WAITING.labels(name).set(waiting.get(name, (0, None))[0])

    async def leave(self) -> None:
        """End what is under way: another process sends, or nobody."""
        sending, self._sending = self._sending, {}
        await end(sending.values())
        WEBHOOK_WAITING.clear()
        receivers, self._receivers = self._receivers, None
        if receivers is not None:
            await receivers.close()

    async def _send_due(self, webhook: Webhook) -> None:
        failed_together = 0
        try:
            while notices := await self._store.due(webhook.id, AT_ONCE):
                reach = await self._reached(webhook)
                taken = await all_of(*(self._attempt(webhook, notice, reach) for notice in notices))
                failed_together = failed_together + 1 if set(taken) == {False} else 0
                if failed_together:
                    await asyncio.sleep(min(BRAKE_SECONDS * 2**failed_together, LONGEST_BRAKE))
        except Exception as error:  # noqa: BLE001 - the edge of a task of its own: a later round tries again
            log.warning("a webhook waits", webhook=webhook.id, reason=describe(error))
            await asyncio.sleep(FAULT_SECONDS)

    async def _reached(self, webhook: Webhook) -> "_Reach":
        """Look up where to send to, once for what is sent together."""
        if self._receivers is None:
            self._receivers = Receivers()
        key = b64decode(secret_of(webhook.id, await self._secret()).removeprefix(SECRET_PREFIX))
        try:
            url = checked_url(webhook.url, allow_private=webhook.allow_private)
            addresses = await self._receivers.addresses(url, allow_private=webhook.allow_private)
        except (EdenError, OSError, UnicodeError) as error:
            return _Reach(key, lacking=describe(error))
        return _Reach(key, self._receivers, url, addresses)

    async def _attempt(self, webhook: Webhook, notice: WebhookNotice, reach: "_Reach") -> bool | None:
        """Send a notice once, or find that it is not to be sent; False if its receiver did not take it."""
        now, told = self._clock(), await self._memory.look(notice)
        if now - notice.waits_since > TRIED_FOR and (told != "gone" or notice.type == "memory.forgotten"):
            if told != "awaited":
                await self._letters.put([self._letter_of(notice, now)])
            await self._store.drop(notice)
            return None
        if told == "awaited":
            await self._store.postpone(notice, _look_again_at(notice, now))
            return None
        changed = notice.type == "memory.changed" or isinstance(told, StoredMemory)
        if not await self._store.begin(notice, now + pause_after(notice.attempts + 1), as_changed=changed):
            return None
        return await self._send(webhook, notice, reach, now, changed=changed)

    async def _send(
        self, webhook: Webhook, notice: WebhookNotice, reach: "_Reach", now: datetime, *, changed: bool
    ) -> bool | None:
        """Make an attempt that is noted. `changed`: it says so, also where one version alone is forgotten."""
        told = await self._memory.look(notice)  # at the moment of sending: noting the attempt took its time
        if changed and told == "gone":
            if notice.attempts or notice.type == "memory.forgotten":
                await self._follow_up(notice)
            await self._store.drop(notice)
            return None
        if told == "awaited" or (told != "gone" and not changed):
            await self._store.postpone(notice, _look_again_at(notice, now))
            return None
        failure = await reach.send(
            notice, told if isinstance(told, StoredMemory) else None, int(now.timestamp())
        )
        if failure is not None:
            WEBHOOK_FAILED.labels(webhook.id).inc()
            log.info(
                "a webhook took nothing", webhook=webhook.id, attempts=notice.attempts + 1, reason=failure
            )
            await self._store.postpone(notice, now + pause_after(notice.attempts + 1), failure)
            return False
        WEBHOOK_SENT.labels(webhook.id).inc()
        if isinstance(told, StoredMemory):
            sent = notice.model_copy(update={"attempts": notice.attempts + 1})
            if await self._memory.look(sent) == "gone":
                await self._follow_up(notice)
        await self._store.taken(notice)
        return True

    async def _follow_up(self, notice: WebhookNotice) -> None:
        """Have `forgotten` sent behind a change that may have arrived."""
        now = self._clock()
        behind = forgotten_notice(notice.webhook_id, notice.kind, notice.entity_id, now, now, cause=notice.id)
        await self._store.add([behind])

    def _letter_of(self, notice: WebhookNotice, now: datetime) -> DeadLetter:
        of = self._letters.origin(STAGE)
        named = (f"{notice.kind}:{notice.entity_id}", f"{notice.kind}:{notice.entity_id}@{notice.version}")
        return DeadLetter(
            _id=hashed(of.program, notice.id, notice.waits_since.isoformat()),
            program=of.program,
            stage=of.stage,
            reason=f"a webhook took nothing for {TRIED_FOR.days} days: {notice.failure or 'not tried'}",
            error="NotTaken",
            attempts=max(notice.attempts, 1),
            at=now,
            topic=f"webhook {notice.webhook_id}",
            partition=0,  # of no topic, so no stage takes it for a record of its own
            key=notice.id.encode(),
            value=orjson.dumps(notice.model_dump(mode="json")),
            named=named if notice.type == "memory.changed" else None,
        )

    async def _retry_letters(self, webhooks: dict[str, Webhook]) -> None:
        """Have dead letters sent again that people ask for; of webhooks that are there no more they are dropped."""
        for asked in await self._letters.asked(self._letters.origin(STAGE).program):
            if not asked.topic.startswith("webhook "):
                continue
            letter = await self._letters.get(asked.id)
            if letter is None or letter.value is None:
                continue
            notice = WebhookNotice.model_validate_json(letter.value)
            if notice.webhook_id not in webhooks:
                await self._letters.settle([letter.id], "dropped")
                continue
            now = self._clock()
            await self._store.put_back(notice.model_copy(update={"waits_since": now, "due": now}))
            await self._letters.tried(letter.id, letter.retries, None)


def _look_again_at(notice: WebhookNotice, now: datetime) -> datetime:
    """Return when to look again for what is not stored yet."""
    waited = (now - notice.waits_since).total_seconds()
    return now + timedelta(seconds=min(max(0.2, waited / 5), 60))


class _Reach:
    """A receiver for notices that are sent together, or why it cannot be reached."""

    def __init__(
        self,
        key: bytes,
        receivers: Receivers | None = None,
        url: httpx2.URL | None = None,
        addresses: Sequence[str] = (),
        *,
        lacking: str = "",
    ) -> None:
        self._key, self._receivers, self._url, self._addresses = key, receivers, url, addresses
        self._lacking = lacking

    async def send(self, notice: WebhookNotice, stored: StoredMemory | None, at: int) -> str | None:
        """Post a notice at `at` (Unix seconds); return why it was not taken."""
        if self._receivers is None or self._url is None:
            return self._lacking
        body = body_of(notice, stored)
        headers = signed_headers(notice.id, at, body, self._key)
        return await self._receivers.post(self._url, self._addresses, headers, body)
