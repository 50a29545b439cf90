"""Requests generated from the OpenAPI document: no server error, and no answer that it does not name."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import schemathesis
import yaml
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import not_a_server_error  # pyright: ignore[reportUnknownVariableType]
from schemathesis.specs.openapi import checks

from tests.integration.doors.conftest import Doors
from tests.integration.http.conftest import bearer
from tools.reference.export import openapi_text

pytestmark = pytest.mark.servers
PAGE = Path(__file__).parents[3] / "docs/openapi.yaml"
SEED, EXAMPLES = 20_261_122, 8
CHECKS: list[Any] = [
    not_a_server_error,
    checks.status_code_conformance,  # pyright: ignore[reportUnknownMemberType]
    checks.content_type_conformance,  # pyright: ignore[reportUnknownMemberType]
    checks.response_schema_conformance,  # pyright: ignore[reportUnknownMemberType]
    checks.negative_data_rejection,  # pyright: ignore[reportUnknownMemberType]
]
ENDLESS = "/v1/agents/{agent}/events"
BOUNDED = settings(
    max_examples=EXAMPLES,
    database=None,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large),
)


async def test_the_document_checked_in_is_the_one_served(api: Doors) -> None:
    served = (await api.http.get("/openapi.json")).json()
    assert PAGE.read_text() == openapi_text()
    assert yaml.safe_load(PAGE.read_text()) == served


async def test_every_operation_says_its_errors_and_how_to_be_let_in(api: Doors) -> None:
    document = (await api.http.get("/openapi.json")).json()
    operations = [one for item in document["paths"].values() for one in item.values()]
    assert len(operations) >= 18
    for one in operations:
        assert {"401", "403", "413", "422", "429", "503"} <= set(one["responses"])
        assert one["summary"]
        assert one["description"]
    assert set(document["components"]["securitySchemes"]) == {"bearer", "header"}


@pytest.mark.slow
async def test_what_is_generated_from_the_document_is_answered_as_it_says(api: Doors) -> None:
    secret, _ = await api.keys.create("generated", rights=("read", "write", "admin"))
    schema: Any = schemathesis.openapi.from_dict((await api.http.get("/openapi.json")).json())
    tried = await asyncio.to_thread(_try_all, schema, api.url, secret)
    assert tried >= 100


def _try_all(schema: Any, url: str, secret: str) -> int:
    """In a thread: Schemathesis waits for its answers."""
    tried = 0

    def ask(case: Any) -> None:
        nonlocal tried
        tried += 1
        answer = case.call(base_url=url, headers=bearer(secret), timeout=30)
        case.validate_response(answer, checks=CHECKS)

    for operation in (one.ok() for one in schema.get_all_operations()):
        if operation.path != ENDLESS:
            seed(SEED)(BOUNDED(given(case=operation.as_strategy())(ask)))()
    return tried
