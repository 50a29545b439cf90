"""A Schema Registry that speaks Confluent's protocol (Confluent, Karapace, Apicurio's `/apis/ccompat/v7`)."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import quote

import httpx2

from eden_memory.errors import EdenError

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
SECONDS = 30.0


class SchemaRegistry:
    """Registers JSON Schemas. The address may hold a user and a password."""

    def __init__(self, address: str) -> None:
        self._client = httpx2.AsyncClient(base_url=address.rstrip("/"), timeout=SECONDS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def register(self, subject: str, schemas: Sequence[str]) -> list[int]:
        """Register the versions of a subject in order, oldest first; return their ids. Repeating it changes nothing.

        The registry is told not to compare versions: readers upcast old records, which no registry knows.
        """
        path, (first, *later) = quote(subject, safe=""), schemas
        ids = [
            await self._add(path, first)
        ]  # before the subject's setting: Apicurio has no subject without a schema
        await self._ask("PUT", f"/config/{path}", {"compatibility": "NONE"})
        return ids + [await self._add(path, schema) for schema in later]

    async def _add(self, path: str, schema: str) -> int:
        answer = await self._ask(
            "POST", f"/subjects/{path}/versions", {"schemaType": "JSON", "schema": schema}
        )
        return answer["id"]

    async def _ask(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        where = f"the Schema Registry at {self._client.base_url.host}"
        try:
            answer = await self._client.request(
                method, path, json=body, headers={"Content-Type": CONTENT_TYPE}
            )
        except httpx2.HTTPError as error:
            raise EdenError(
                f"{where} does not answer: {type(error).__name__}", "Check the address and that it runs."
            ) from None
        if answer.is_error:
            raise EdenError(
                f"{where} refused {method} {path}: {answer.status_code} {_reason(answer)}",
                "Check the address (Apicurio: …/apis/ccompat/v7) and that its user may write.",
            )
        return cast("dict[str, Any]", answer.json())


def _reason(answer: httpx2.Response) -> str:
    try:
        return str(answer.json().get("message", ""))[:200]
    except (ValueError, AttributeError):
        return ""
