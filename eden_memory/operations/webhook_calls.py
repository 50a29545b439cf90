"""The calls on webhooks, for whoever administers everything: add, list and remove."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field

from eden_memory.app.memory import ProcessMemory
from eden_memory.directory.secret_store import installation_secret
from eden_memory.errors import Invalid
from eden_memory.schemas.documents import Webhook, WebhookSubject
from eden_memory.webhooks.webhook_rules import LONGEST_URL, secret_of
from eden_memory.webhooks.webhook_store import Webhooks

WHAT = "a webhook"
Url = Annotated[
    str,
    Field(
        min_length=1,
        max_length=LONGEST_URL,
        description="where to post to: https, at a public address",
        examples=["https://example.com/eden"],
    ),
]
On = Annotated[
    list[WebhookSubject],
    Field(
        min_length=1,
        description="what to tell of; `forgotten` follows always, and stands alone for whoever hears of nothing else",
        examples=[["facts", "reflections", "forgotten"]],
    ),
]
Agents = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=1_024)]] | None,
    Field(min_length=1, max_length=100, description="only of these agents; without: of all"),
]
WebhookId = Annotated[str, Field(max_length=64, description="id of the webhook", examples=["4f1c0d2ab9e3"])]


class WebhookView(BaseModel):
    """A webhook, and how it does."""

    id: str
    url: str
    on: tuple[WebhookSubject, ...]
    agents: tuple[str, ...] | None = None
    """Null: every agent."""
    allow_private: bool = False
    created_at: datetime
    created_by: str
    waiting: int = 0
    """Notices that its receiver has not taken yet."""
    failure: str | None = None
    """Why one of them was not taken."""


class AddedWebhook(BaseModel):
    """A new webhook, with its secret, which is shown this once."""

    webhook: WebhookView
    secret: str
    """`whsec_` and base64: the key of the signatures (Standard Webhooks)."""


class RemovedWebhook(BaseModel):
    """The webhook that was removed."""

    id: str


async def add_webhook(
    memory: ProcessMemory,
    url: str,
    on: Sequence[WebhookSubject],
    agents: Sequence[str] | None = None,
    *,
    allow_private: bool = False,
    asked_by: str = "MemoryService",
) -> AddedWebhook:
    """Add a webhook and return its secret. Agents as text. Invalid for an address that may not be told.

    `allow_private`: also a private address, and http; only for operators of this network.
    """
    checked = await _checked(url, allow_private=allow_private)
    typed = None if agents is None else [await memory.ids.typed("agent", agent) for agent in agents]
    names = (await memory.current()).settings.names
    store = Webhooks(memory.database, names)
    webhook = await store.create(checked, on, typed, allow_private=allow_private, created_by=asked_by)
    secret = secret_of(webhook.id, await installation_secret(memory.database, names))
    return AddedWebhook(webhook=_view(webhook), secret=secret)


async def list_webhooks(memory: ProcessMemory) -> list[WebhookView]:
    """Return all webhooks, oldest first."""
    store = Webhooks(memory.database, (await memory.current()).settings.names)
    waiting = await store.waiting()
    return [_view(webhook, *waiting.get(webhook.id, (0, None))) for webhook in await store.webhooks()]


async def remove_webhook(memory: ProcessMemory, webhook_id: str) -> RemovedWebhook:
    """Remove a webhook with what waits for it; nothing is sent to it any more. NotFound."""
    await Webhooks(memory.database, (await memory.current()).settings.names).remove(webhook_id)
    return RemovedWebhook(id=webhook_id)


async def _checked(url: str, *, allow_private: bool) -> str:
    """Return a receiver's URL; Invalid for what may not be told.

    A name that cannot be looked up now is looked up with each attempt.
    """
    from eden_memory.webhooks.receivers import (  # noqa: PLC0415 - an HTTP client, which few calls need
        PrivateAddress,
        addresses_of,
        checked_url,
    )

    checked = checked_url(url, allow_private=allow_private)
    try:
        await addresses_of(checked, allow_private=allow_private)
    except PrivateAddress as error:
        raise Invalid(error.what, error.hint) from None
    except OSError:
        pass
    return str(checked)


def _view(webhook: Webhook, waiting: int = 0, failure: str | None = None) -> WebhookView:
    return WebhookView(**webhook.model_dump(by_alias=False), waiting=waiting, failure=failure)
