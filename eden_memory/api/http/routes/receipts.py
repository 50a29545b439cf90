"""`/v1/receipts`: signed receipts of what was forgotten."""

from typing import Annotated

from fastapi import APIRouter, Path, Request

from eden_memory.api.forgetting_receipts import receipt_of
from eden_memory.api.http.doors import AdmittedRoute, doors_of
from eden_memory.receipts.receipt import Receipt

router = APIRouter(prefix="/v1/receipts", route_class=AdmittedRoute, tags=["writing"])
RequestId = Annotated[
    str,
    Path(
        min_length=1,
        max_length=1_024,
        description="What a request to forget has answered.",
        examples=["o.65f0"],
    ),
]


@router.get("/{request_id}", summary="The receipt of a request to forget")
async def receipt(request: Request, request_id: RequestId) -> Receipt:
    """It names what was erased by ids and keyed hashes. 404 until it is carried out, 409 while something is left."""
    return await receipt_of(doors_of(request).memory, request.state.caller, request_id)
