"""`/v1/receipts`: signed receipts of what was forgotten, and whether they hold."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from eden_memory.access.callers import demand_operator
from eden_memory.api.http.doors import AdmittedRoute, doors_of
from eden_memory.operations.receipt_calls import checked_receipt, receipt_of
from eden_memory.receipts.receipt import CheckedReceipt, Receipt


class OperatorRoute(AdmittedRoute):
    """A route that reads no body (a receipt may be large) of callers that do not administer everything."""

    def demand(self, request: Request) -> None:
        """Raise Refused, too."""
        super().demand(request)
        demand_operator(request.state.caller, "a receipt")


router = APIRouter(prefix="/v1/receipts", route_class=OperatorRoute, tags=["writing"])
RequestId = Annotated[
    str,
    Path(
        min_length=1,
        max_length=4_096,
        description="What a request to forget or to undo has answered.",
        examples=["o.65f0"],
    ),
]
InTopics = Annotated[
    bool, Query(description="Look in Kafka's topics, too; false: in MongoDB's collections alone.")
]


@router.post("/verify", summary="Check a receipt, at any later time")
async def verify(request: Request, body: Receipt, topics: InTopics = True) -> CheckedReceipt:
    """422 unless this installation has signed exactly this receipt; else what it names and is there, or not clean."""
    del body  # as it was sent: the signature is over this very receipt
    caller = request.state.caller
    return await checked_receipt(doors_of(request).memory, caller, await request.body(), in_topics=topics)


@router.get("/{request_id}", summary="The receipt of a request to forget or to undo")
async def receipt(request: Request, request_id: RequestId) -> Receipt:
    """It names what was erased by ids and keyed hashes. 404 until it is carried out, 409 while something is left."""
    return await receipt_of(doors_of(request).memory, request.state.caller, request_id)
