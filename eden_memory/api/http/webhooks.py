"""`/v1/webhooks`: programs that are told of changes by HTTP."""

from typing import Annotated

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, ConfigDict

from eden_memory.access.admission_store import demand_operator
from eden_memory.api.http.doors import AdmittedRoute, doors_of
from eden_memory.operations.table import BY_NAME
from eden_memory.operations.webhook_calls import (
    WHAT,
    AddedWebhook,
    Agents,
    On,
    RemovedWebhook,
    Url,
    WebhookId,
    WebhookView,
    add_webhook,
    list_webhooks,
    remove_webhook,
)

ADD, LIST, REMOVE = BY_NAME["add webhook"], BY_NAME["list webhooks"], BY_NAME["remove webhook"]


class AddWebhook(BaseModel):
    """Tell a program of changes by HTTP."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"examples": [dict(ADD.examples)]}
    )

    url: Url
    on: On
    agents: Agents = None


class WebhookRoute(AdmittedRoute):
    """A route for callers that administer everything."""

    def demand(self, request: Request) -> None:
        """Raise Refused, too."""
        super().demand(request)
        demand_operator(request.state.caller, WHAT)


router = APIRouter(prefix="/v1/webhooks", route_class=WebhookRoute, tags=["webhooks"])


@router.post("", summary=ADD.summary, description=ADD.words)
async def add(request: Request, body: AddWebhook) -> AddedWebhook:
    """Answer the webhook and its secret."""
    caller = request.state.caller
    return await add_webhook(
        doors_of(request).memory, body.url, body.on, body.agents, asked_by=f"http:{caller.name}"
    )


@router.get("", summary=LIST.summary, description=LIST.words)
async def listed(request: Request) -> list[WebhookView]:
    """Answer the webhooks."""
    return await list_webhooks(doors_of(request).memory)


@router.delete("/{webhook_id}", summary=REMOVE.summary, description=REMOVE.words)
async def remove(request: Request, webhook_id: Annotated[WebhookId, Path()]) -> RemovedWebhook:
    """Answer the id of what was removed."""
    return await remove_webhook(doors_of(request).memory, webhook_id)
