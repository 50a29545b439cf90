"""Every alert fires when it should, and keeps silent through a quiet night (promtool runs the rules)."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.dashboards.export import runbooks
from tests.dashboards.panels import OUR_GROUPS

ROOT = Path(__file__).parents[3]
RULES = ROOT / "dashboards/prometheus/rules.yml"
LOADED: Any = yaml.safe_load(RULES.read_text())
ALERTS = {rule["alert"]: rule for group in LOADED["groups"] for rule in group["rules"]}
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)")
HOURS, NIGHT = 2, 10
N = NIGHT * 60
"""Samples of a whole night, one a minute; what fires does so within its first hours."""
OF = 'namespace="eden"'
CHAT = f'eden_tailer_records_total{{{OF},origin="stream",record="MessageRecorded"}}'
FORMATIONS = f'kafka_topic_partition_current_offset{{{OF},topic="memory.formations",partition="0"}}'
DEAD = f'eden_dead_letters_unsettled{{{OF},stage="fact-extraction"}}'
LLM = f'eden_llm_calls_total{{{OF},provider="openai",stage="fact-extraction",model="m",agent="s.a"'
Series = Mapping[str, str]

QUIET: Series = {
    'up{job="eden",instance="tailer:8080"}': f"1x{N}",
    f'eden_tailer_leading{{{OF},instance="a"}}': f"1x{N}",
    f'eden_tailer_leading{{{OF},instance="b"}}': f"0x{N}",
    f'eden_tailer_lag_seconds{{{OF},instance="a"}}': f"0.4x{N}",
    f'eden_tailer_lag_seconds{{{OF},instance="b"}}': f"0x{N}",
    f'eden_tailer_oplog_left_seconds{{{OF},instance="a"}}': f"90000x{N}",
    f'eden_tailer_oplog_left_seconds{{{OF},instance="b"}}': f"0x{N}",
    f'kafka_consumergroup_lag_seconds{{{OF},consumergroup="eden.fact-dedup",partition="0"}}': f"0 3 12 4 0x{N}",
    f'kafka_consumergroup_lag_seconds{{{OF},consumergroup="eden.context-cache",partition="0"}}': f"0x{N}",
    f"eden_lag_read_timestamp_seconds{{{OF}}}": f"0+60x{N}",
    f'eden_stage_paused{{{OF},stage="fact-dedup",kind="outage"}}': f"0x40 1x1 0x{N}",
    CHAT: f"0+4x{N}",
    FORMATIONS: f"0+1x{N}",
    DEAD: f"2x{N}",
    f'eden_provider_away{{{OF},provider="openai",model="m"}}': f"0x40 1x1 0x{N}",
    f'{LLM},outcome="answered"}}': f"0+10x{N}",
    f'{LLM},outcome="rate_limited"}}': f"0+1x{N}",
    f'eden_budget_spent_usd{{{OF},budget="all",per="day"}}': f"0+0.002x{N}",
    f'eden_budget_limit_usd{{{OF},budget="all",per="day"}}': f"10x{N}",
    f'eden_budget_spent_usd{{{OF},budget="all",per="month"}}': f"1x{N}",
    f'eden_budget_limit_usd{{{OF},budget="all",per="month"}}': f"100x{N}",
    f'eden_budget_reached{{{OF},budget="all",per="day"}}': f"0x{N}",
    f"eden_budget_waiting_windows{{{OF}}}": f"0x{N}",
    f'eden_spent_usd{{{OF},period="day",stage="s"}}': f"1.2x{N}",
    f'eden_spent_usd{{{OF},period="month",stage="s"}}': f"1.2x{N}",
    f"eden_consolidation_due_seconds{{{OF}}}": f"0 30 60 0x{N}",
    f'eden_context_delay_seconds_bucket{{{OF},le="1"}}': f"0+9x{N}",
    f'eden_context_delay_seconds_bucket{{{OF},le="30"}}': f"0+10x{N}",
    f'eden_context_delay_seconds_bucket{{{OF},le="+Inf"}}': f"0+10x{N}",
}
"""Figures as they are when all is well: short pauses, retries and bursts among them."""

FIRES: Mapping[str, list[Series]] = {
    "EdenProcessDown": [{'up{job="eden",instance="tailer:8080"}': f"1x10 0x{N}"}],
    "EdenNoTailer": [{f'eden_tailer_leading{{{OF},instance="a"}}': f"1x10 0x{N}"}],
    "EdenTailerBehind": [{f'eden_tailer_lag_seconds{{{OF},instance="a"}}': f"0+60x{N}"}],
    "EdenOplogRunningOut": [
        {f'eden_tailer_oplog_left_seconds{{{OF},instance="a"}}': f"90000-1000x88 2000x{N}"}
    ],
    "EdenGroupLagGrowing": [
        {
            f'kafka_consumergroup_lag_seconds{{{OF},consumergroup="eden.fact-dedup",partition="0"}}': f"0+60x{N}"
        }
    ],
    "EdenOtherGroupLagGrowing": [
        {f'kafka_consumergroup_lag_seconds{{{OF},consumergroup="billing",partition="0"}}': f"0+60x{N}"}
    ],
    "EdenLagUnknown": [{f"eden_lag_read_timestamp_seconds{{{OF}}}": f"0+60x30 1800x{N}"}],
    "EdenStagePaused": [
        {f'eden_stage_paused{{{OF},stage="fact-dedup",kind="outage"}}': f"0x40 1x{N}"},
        {f'eden_stage_paused{{{OF},stage="fact-dedup",kind="hand"}}': f"1x{N}"},
    ],
    "EdenDeadLetters": [{DEAD: f"2x110 3x{N}"}],
    "EdenProviderAway": [{f'eden_provider_away{{{OF},provider="openai",model="m"}}': f"0x40 1x{N}"}],
    "EdenProviderFailing": [{f'{LLM},outcome="timed_out"}}': f"0+30x{N}"}],
    "EdenBudgetOverPace": [
        {f'eden_budget_spent_usd{{{OF},budget="all",per="day"}}': f"9x{N}"},
        {f'eden_budget_spent_usd{{{OF},budget="all",per="month"}}': f"60x{N}"},
    ],
    "EdenBudgetReached": [{f'eden_budget_reached{{{OF},budget="all",per="day"}}': f"0x40 1x{N}"}],
    "EdenConsolidationStuck": [{f"eden_consolidation_due_seconds{{{OF}}}": f"0+60x{N}"}],
    "EdenContextNotFresh": [
        {
            f'kafka_consumergroup_lag_seconds{{{OF},consumergroup="eden.context-cache",partition="0"}}': f"120x{N}"
        },
        {
            f'eden_context_delay_seconds_bucket{{{OF},le="30"}}': f"0+1x{N}",
            f'eden_context_delay_seconds_bucket{{{OF},le="1"}}': f"0+1x{N}",
            f'eden_context_delay_seconds_bucket{{{OF},le="60"}}': f"0+10x{N}",
        },
    ],
    "EdenNoFormation": [{FORMATIONS: f"2000x{N}"}],
}
"""What is different in a night in which it fires; each entry alone must do."""
LATE: Series = {
    f'eden_spent_usd{{{OF},period="day",stage="s"}}': f"9x{5 * 24 * 6}",
    f'eden_spent_usd{{{OF},period="month",stage="s"}}': f"15x{5 * 24 * 6}",
}
"""EdenSpendOverPace looks at the day of the month: the fifth (a test's clock begins on 1 January 1970)."""


def case(
    name: str, series: Series, firing: list[str], hours: int = HOURS, minutes: int = 1
) -> dict[str, Any]:
    """What fires at the end of a night; `minutes` from one sample to the next."""
    return {
        "name": name,
        "interval": f"{minutes}m",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{hours * 60 - minutes}m",
                "exp_samples": [{"labels": f'{{alertname="{one}"}}', "value": 1} for one in firing],
            }
        ],
    }


def promtool(folder: Path, cases: list[dict[str, Any]], minutes: int = 1) -> subprocess.CompletedProcess[str]:
    assert PROMTOOL is not None
    path = folder / "cases.yml"
    rules = folder / "rules.yml"
    rules.write_text(RULES.read_text().replace("interval: 15s", f"interval: {minutes}m"))
    tests = {"rule_files": [str(rules)], "evaluation_interval": f"{minutes}m", "tests": cases}
    path.write_text(yaml.safe_dump(tests))
    return subprocess.run([PROMTOOL, "test", "rules", str(path)], capture_output=True, text=True, check=False)


@needs_promtool
def test_a_quiet_night_wakes_nobody(tmp_path: Path) -> None:
    ran = promtool(tmp_path, [case("quiet", QUIET, [], NIGHT)])
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.slow
@needs_promtool
def test_each_alert_fires_alone_when_its_figure_goes_wrong(tmp_path: Path) -> None:
    nights = [
        case(f"{alert} {number}", {**QUIET, **wrong}, [alert])
        for alert, wrongs in FIRES.items()
        for number, wrong in enumerate(wrongs)
    ]
    late = [case("late", LATE, ["EdenSpendOverPace"], 4 * 24 + 12, 10)]
    for cases, minutes in ((nights, 1), (late, 10)):
        ran = promtool(tmp_path, cases, minutes)
        assert ran.returncode == 0, ran.stdout + ran.stderr


@needs_promtool
def test_a_test_of_an_alert_can_fail(tmp_path: Path) -> None:
    assert promtool(tmp_path, [case("wrong", QUIET, ["EdenNoTailer"])]).returncode != 0


def test_every_alert_is_among_those_tested_and_names_a_runbook_that_explains_it() -> None:
    assert set(ALERTS) == {*FIRES, "EdenSpendOverPace"}
    for name, rule in ALERTS.items():
        assert re.search(rf"\b{name}\b", runbooks()[rule["annotations"]["runbook"]]), name
        assert rule["labels"]["severity"] in {"page", "ticket"}


def test_the_alerts_on_lag_know_which_groups_are_this_programs() -> None:
    assert f'consumergroup=~"{OUR_GROUPS}"' in ALERTS["EdenGroupLagGrowing"]["expr"]
    assert f'consumergroup!~"{OUR_GROUPS}"' in ALERTS["EdenOtherGroupLagGrowing"]["expr"]
