"""Every panel's query answers on a running system, and its figures agree with what was counted independently."""

import math
import re
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from eden_memory.api.gateway.turns import PREFIX
from eden_memory.schemas.events import (
    FactChanged,
    FormationRequested,
    MessageRecorded,
    ModelCalled,
    ReflectionFormed,
)
from tests.dashboards.export import BOARDS
from tests.dashboards.live import Live
from tests.dashboards.panels import Board, Panel
from tests.dashboards.prometheus import FOUND, RULES, Vector
from tests.integration.observability.test_lag_figures import Broker
from tests.integration.system.running_system import until

pytestmark = [
    pytest.mark.servers,
    pytest.mark.slow,
    pytest.mark.skipif(
        FOUND is None, reason="Prometheus is not installed (Debian: apt-get install prometheus)"
    ),
]
PANELS = [
    pytest.param(board, panel, id=f"{board.uid}: {panel.title}") for board in BOARDS for panel in board.panels
]
METRIC = re.compile(r"\b(?:eden|kafka|gen_ai)_[a-z_]+\b")
LABELS = {"gen_ai_request_model", "gen_ai_token_type", "gen_ai_operation_name", "gen_ai_provider_name"}
SEARCHED = '(sum(eden_llm_cost_usd_total{stage="search"}) or vector(0))'
"""Searches count their calls themselves: they are not in memory.usage."""
CENT = 0.01
"""In per cent of the sum: far below a cent of what is spent here."""


def used() -> set[str]:
    """Every metric that a panel or an alert names."""
    text = " ".join(query.expr for board in BOARDS for panel in board.panels for query in panel.queries)
    return {name for name in METRIC.findall(text + RULES.read_text()) if name not in LABELS}


@pytest.mark.parametrize(("board", "panel"), PANELS)
async def test_a_panels_queries_answer(watched: Live, board: Board, panel: Panel) -> None:
    del board
    for query in panel.queries:
        found = await answered(watched, query.expr)
        assert any(math.isfinite(value) for _, value in found), f"only NaN: {query.expr}"
        for name in re.findall(r"{{(\w+)}}", query.legend):
            assert any(name in labels for labels, _ in found), f"{name} in the legend, not in {query.expr}"


async def answered(watched: Live, expr: str) -> Vector:
    """What a query finds; a scrape that took too long leaves nothing to be found until the next one."""
    found: Vector = []

    async def there() -> bool:
        found[:] = await watched.ask(expr)
        return bool(found)

    await until(there, f"data of {expr}")
    return found


async def test_every_metric_that_a_panel_or_an_alert_names_was_scraped(watched: Live) -> None:
    assert used() - await watched.prom.names() == set()


async def test_messages_agree_to_the_message(watched: Live) -> None:
    published = await of_topic(watched, "chat.messages", MessageRecorded)
    stored = await watched.system.source["messages"].count_documents({})
    ids = {one.message_id for one in published}
    turns = {name for name in ids if name.startswith(f"s.{PREFIX}")}
    assert len(turns) == 2, "the gateway's question and its answer, which every round sends again"
    assert len(ids - turns) == stored >= watched.written
    counted = 'sum(eden_tailer_records_total{record="MessageRecorded"})'
    await until(partial(_comes_to, watched, counted, len(published)), f"{counted} to be {len(published)}")


async def test_cost_agrees_to_the_cent(watched: Live) -> None:
    calls = {one.call_id: one for one in await of_topic(watched, "memory.usage", ModelCalled)}
    told = sum((one.cost_usd for one in calls.values() if one.cost_usd is not None), Decimal())
    assert told > 0
    for expr in (
        "sum(eden_llm_cost_usd_total)",
        "sum(eden_usage_cost_usd_total)",
        'sum(eden_spent_usd{period="day"})',
        'sum(eden_spent_usd{period="month"})',
    ):
        formed = f"{expr} - {SEARCHED}"
        await until(partial(_comes_to, watched, formed, float(told)), f"{formed} to be {told}")
    unknown = [one for one in calls.values() if one.cost_usd is None and one.outcome == "answered"]
    unpriced = sum(one.requests for one in unknown)
    assert unpriced > 0

    async def all_of_them() -> bool:
        return await watched.prom.value("sum(eden_llm_unpriced_calls_total)") >= unpriced

    await until(all_of_them, f"{unpriced} unpriced calls")


async def test_decisions_windows_and_reflections_agree_with_what_was_published(watched: Live) -> None:
    for expr, topic, kind in (
        ("sum(eden_facts_decided_total)", "memory.facts", FactChanged),
        ("sum(eden_reflections_formed_total)", "memory.reflections", ReflectionFormed),
        ("sum(eden_trigger_windows_total)", "memory.formations", FormationRequested),
    ):
        published = len(await of_topic(watched, topic, kind))
        assert published > 0, expr
        await until(partial(_comes_to, watched, expr, published), f"{expr} to be {published}")


async def test_dead_letters_are_counted_each_once(watched: Live) -> None:
    dead = len(await watched.system.dead())
    assert dead == 2
    counted = "sum(eden_dead_letters_total)"
    await until(partial(_comes_to, watched, counted, dead), f"{counted} to be {dead}")


async def test_each_use_of_a_door_is_counted_where_it_came_in(watched: Live) -> None:
    rounds = watched.doors_rounds
    for expr, times in (
        ('sum(eden_http_requests_total{route="/v1/agents/{agent}/context"})', 2),
        ('sum(eden_http_requests_total{route="/v1/agents/{agent}/search"})', 1),
        ('sum(eden_http_requests_total{route="/v1/chat/completions",status="2xx"})', 1),
        ('sum(eden_http_requests_total{route="/mcp",status="2xx"})', 1),
        ('sum(eden_gateway_chats_total{how="answered"})', 1),
        ("sum(eden_gateway_added_seconds_count)", 1),
    ):
        assert times * rounds > 0
        await until(partial(_comes_to, watched, expr, times * rounds), f"{expr} to be {times * rounds}")
    ((_, searches),) = await answered(watched, "sum(eden_searches_total)")
    assert searches >= rounds
    measured = 'sum(eden_search_seconds_count{stage="all"})'
    await until(partial(_comes_to, watched, measured, searches), f"{measured} to be {searches}")
    ((_, kept),) = await answered(watched, "sum(eden_search_kept_scopes)")
    assert kept > 0


async def test_lag_agrees_with_the_broker_to_the_record(watched: Live) -> None:
    topic = f"{watched.settings.kafka.topic_prefix}memory.facts"
    ends = await watched.ends(topic, 2)
    partition = max(ends, key=lambda number: ends[number])
    group = f"{watched.settings.kafka.group_prefix}newcomer"
    await Broker(watched.system.client, topic, group).commit(group, partition, 1)
    lag = f'kafka_consumergroup_lag{{consumergroup="{group}",topic="{topic}",partition="{partition}"}}'
    await until(partial(_comes_to, watched, lag, ends[partition] - 1), f"{lag} to be {ends[partition] - 1}")
    for name in ("lag", "lag_seconds", "current_offset"):
        assert len(await answered(watched, f'kafka_consumergroup_{name}{{consumergroup="{group}"}}')) == 1


def test_there_is_a_rule_file_to_prove() -> None:
    assert Path(RULES).exists()
    assert len(used()) > 60


async def _comes_to(watched: Live, expr: str, wanted: float) -> bool:
    return abs(await watched.prom.value(expr) - wanted) <= wanted * CENT / 100


async def of_topic(watched: Live, topic: str, kind: type[Any]) -> list[Any]:
    """The events of a kind in a topic, each once."""
    found = [one for one in await watched.system.records(topic) if one.value is not None]
    events = {one.headers["ce_id"]: one.event for one in found if one.envelope.name == kind.NAME}
    return list(events.values())
