"""`/v1/receipts`: signed receipts of what was forgotten, and whether they hold."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from eden_memory.access.admission_store import demand_operator
from eden_memory.api.http.doors import AdmittedRoute, doors_of
from eden_memory.operations.parameters import InTopics, RequestId
from eden_memory.operations.receipt_calls import checked_receipt, receipt_of
from eden_memory.operations.table import BY_NAME
from eden_memory.receipts.receipt import CheckedReceipt, Receipt


class OperatorRoute(AdmittedRoute):
    """A route that reads no body (a receipt may be large) of callers that do not administer everything."""

    def demand(self, request: Request) -> None:
        """Raise Refused, too."""
        super().demand(request)
        demand_operator(request.state.caller, "a receipt")


router = APIRouter(prefix="/v1/receipts", route_class=OperatorRoute, tags=["writing"])
RECEIPT, VERIFY = BY_NAME["receipt"], BY_NAME["verify receipt"]


@router.post("/verify", summary=VERIFY.summary, description=VERIFY.words)
async def verify(
    request: Request, body: Receipt, topics: Annotated[InTopics, Query()] = True
) -> CheckedReceipt:
    """Answer whether a receipt holds."""
    del body  # as it was sent: the signature is over this very receipt
    caller = request.state.caller
    return await checked_receipt(doors_of(request).memory, caller, await request.body(), in_topics=topics)


@router.get("/{request_id}", summary=RECEIPT.summary, description=RECEIPT.words)
async def receipt(request: Request, request_id: Annotated[RequestId, Path()]) -> Receipt:
    """Answer the receipt."""
    return await receipt_of(doors_of(request).memory, request.state.caller, request_id)
