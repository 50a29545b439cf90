"""Decide which webhook is told of what, and how a notice is written, signed and repeated. Pure.

Headers, signature and secret follow Standard Webhooks 1.0.0 (symmetric scheme, `v1`).
"""

import hmac
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Literal, Protocol

import orjson

from eden_memory.names import hashed
from eden_memory.schemas.documents import Webhook, WebhookNotice
from eden_memory.schemas.envelope import rfc3339
from eden_memory.schemas.events import FactChanged, ReflectionFormed
from eden_memory.stages.stage import Delivery

Kind = Literal["fact", "reflection"]
MOST_WEBHOOKS = 20
LONGEST_URL = 2_048
SECRET_PREFIX = "whsec_"  # noqa: S105 - how every secret begins
FIRST_SECONDS, FACTOR, LONGEST_SECONDS = 5.0, 3, 10_800.0
"""The pause after the first failed attempt, how it grows, and the longest one."""
TRIED_FOR = timedelta(days=3)
"""Then a notice becomes a dead letter."""
KINDS: dict[str, Kind] = {FactChanged.NAME: "fact", ReflectionFormed.NAME: "reflection"}


class NoticeStore(Protocol):
    """Where webhooks and the notices for them are stored."""

    async def webhooks(self) -> list[Webhook]:
        """Return all webhooks, oldest first."""
        ...

    async def add(self, notices: Sequence[WebhookNotice]) -> None:
        """Store notices; one that is there already stays as it is."""
        ...


def notices_of(delivery: Delivery, webhooks: Iterable[Webhook], now: datetime) -> Iterator[WebhookNotice]:
    """Yield what each webhook is told of a record; a repeat yields the same ids.

    A tombstone goes to whoever hears of changes of that kind, so `forgotten` follows whatever was sent.
    """
    kind = KINDS.get(delivery.envelope.name)
    if kind is None:
        return
    event = delivery.event
    for webhook in webhooks:
        if isinstance(event, FactChanged | ReflectionFormed):
            if f"{kind}s" in webhook.on and (
                webhook.agents is None or event.scope.agent_id in webhook.agents
            ):
                yield WebhookNotice(
                    id=f"msg_{hashed(webhook.id, delivery.id)}",
                    webhook_id=webhook.id,
                    type="memory.changed",
                    kind=kind,
                    entity_id=event.subject(),
                    version=event.version,
                    happened_at=delivery.envelope.time,
                    waits_since=now,
                    due=now,
                )
        elif {f"{kind}s", "forgotten"}.intersection(webhook.on) and _may_concern(
            webhook, delivery.envelope.scope
        ):
            envelope = delivery.envelope
            yield forgotten_notice(webhook.id, kind, envelope.subject, envelope.time, now, cause=delivery.key)


def _may_concern(webhook: Webhook, scope_key: str | None) -> bool:
    """Whether a forgotten thing may be of its agents. A session's key names no agent: then everybody is told."""
    kind, *ids = (scope_key or "session").split(":")
    return webhook.agents is None or kind == "session" or ids[0] in webhook.agents


def forgotten_notice(
    webhook_id: str, kind: Kind, entity_id: str, at: datetime, now: datetime, *, cause: str
) -> WebhookNotice:
    """Return the notice that a fact or reflection is forgotten, or a version of it.

    `cause`: the key of the tombstone, which is one version, or the id of the notice that it follows. A receiver skips
    ids that it knows, and what one version's tombstone tells may be that the memory has changed.
    """
    return WebhookNotice(
        id=f"msg_{hashed(webhook_id, 'forgotten', kind, entity_id, cause)}",
        webhook_id=webhook_id,
        type="memory.forgotten",
        kind=kind,
        entity_id=entity_id,
        happened_at=at,
        waits_since=now,
        due=now,
    )


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """A fact or reflection as it is stored at the moment of sending."""

    version: int
    scope: str
    retired: bool


Told = StoredMemory | Literal["awaited", "gone"]
"""What a notice is about, as it stands: stored, not stored yet, or forgotten."""


def body_of(notice: WebhookNotice, stored: StoredMemory | None) -> bytes:
    """Return the JSON that is sent: ids, kind and scope of what is stored; of what is forgotten its id alone.

    A memory of which only one version is forgotten has changed.
    """
    data: dict[str, Any] = {"kind": notice.kind, "id": notice.entity_id}
    if stored is not None:
        data |= {"version": stored.version, "scope": stored.scope, "retired": stored.retired}
    named = "memory.forgotten" if stored is None else "memory.changed"
    return orjson.dumps({"type": named, "timestamp": rfc3339(notice.happened_at), "data": data})


def secret_of(webhook_id: str, installation: bytes) -> str:
    """Return a webhook's secret, as its receiver is given it."""
    made = hmac.digest(installation, f"webhook:{webhook_id}".encode(), sha256)
    return SECRET_PREFIX + b64encode(made).decode()


def signed_headers(notice_id: str, at: int, body: bytes, key: bytes) -> dict[str, str]:
    """Return the headers of one attempt at `at` (Unix seconds)."""
    signature = hmac.digest(key, b".".join((notice_id.encode(), str(at).encode(), body)), sha256)
    return {
        "webhook-id": notice_id,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{b64encode(signature).decode()}",
    }


def pause_after(attempts: int) -> timedelta:
    """Return how long to wait after so many attempts."""
    return timedelta(seconds=min(FIRST_SECONDS * FACTOR ** min(attempts - 1, 20), LONGEST_SECONDS))
