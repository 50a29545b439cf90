"""Overview: is it healthy, is anything behind, what does it cost today."""

from tests.dashboards.panels import (
    GROUP,
    OF,
    OURS,
    STAGE,
    Board,
    Panel,
    Query,
    Row,
    one,
    per_second,
    quantile,
    unsettled,
)

ANSWER = Row(
    "",
    (
        Panel(
            "Does any alert fire?",
            one('sum(ALERTS{alertstate="firing",alertname=~"Eden.*"}) or vector(0)'),
            "Open Alerting: each alert names its runbook.",
            "stat",
            red=1,
        ),
        Panel(
            "How many stages have work assigned?",
            one(f"count(sum by (stage) (eden_stage_partitions{{{OF}}}) > 0) or vector(0)"),
            "A stage without a partition does not run: start it (`eden run`), and look at its log.",
            "stat",
            orange=9,
            red=8,
            runbook="stage-paused",
        ),
        Panel(
            "How far is the slowest group behind?",
            one(f"max(kafka_consumergroup_lag_seconds{{{OURS}}})"),
            "Pipeline shows which group; its runbook says what to look at.",
            "stat",
            unit="s",
            orange=60,
            red=600,
            runbook="group-lag",
        ),
        Panel(
            "How long from a window to the fresh context (95 %)?",
            one(f"{quantile(0.95, 'eden_message_to_context_seconds', OF, span='1h')} >= 0 or vector(0)"),
            "Memory shows where the time goes; most of it is the models'.",
            "stat",
            unit="s",
            orange=120,
            red=900,
            runbook="context-not-fresh",
        ),
        Panel(
            "What has it cost today?",
            one(f'sum(eden_spent_usd{{{OF},period="day"}}) or vector(0)'),
            "LLM and cost shows by stage, model and agent; `eden budget` sets a limit.",
            "stat",
            unit="currencyUSD",
            decimals=2,
            runbook="spend-over-pace",
        ),
        Panel(
            "How many dead letters are unsettled?",
            one(unsettled()),
            "`eden dead list` shows what and why, `eden dead retry` sends it again.",
            "stat",
            orange=1,
            red=20,
            decimals=0,
            runbook="dead-letters",
        ),
    ),
)
MOVES = Row(
    "Does it move?",
    (
        Panel(
            "Do messages come, and does memory form?",
            (
                Query(per_second("eden_tailer_records", f'{OF},record="MessageRecorded"'), "messages"),
                Query(per_second("eden_trigger_windows", OF), "windows"),
                Query(per_second("eden_facts_decided", OF), "facts decided"),
                Query(per_second("eden_reflections_formed", OF), "reflections"),
            ),
            "Messages without windows for an hour: the runbook; windows without facts: Pipeline.",
            unit="ops",
            wide=12,
            runbook="no-formation",
        ),
        Panel(
            "Which group is behind?",
            one(f"max by (consumergroup) (kafka_consumergroup_lag_seconds{{{GROUP}}})", "{{consumergroup}}"),
            "One group alone: its stage is slow or stands still. All of them: Kafka or MongoDB.",
            unit="s",
            orange=60,
            red=600,
            wide=12,
            runbook="group-lag",
        ),
    ),
)
OTHERS = Row(
    "Does what it stands on answer?",
    (
        Panel(
            "Does a provider stay away?",
            one(
                f"max by (provider, model) (eden_provider_away{{{OF}}})",
                "{{provider}} {{model}}",
            ),
            "Stages wait and probe; nothing is lost. Check the provider's status, key and quota.",
            red=1,
            runbook="provider-failing",
        ),
        Panel(
            "Does a stage stand still?",
            one(f"max by (stage, kind) (eden_stage_paused{{{STAGE}}})", "{{stage}}: {{kind}}"),
            "By hand: `eden resume`. Dead letters: look at them first. Outage: it resumes by itself.",
            red=1,
            runbook="stage-paused",
        ),
        Panel(
            "Where did today's money go?",
            one(f'sum by (stage) (eden_spent_usd{{{STAGE},period="day"}}) or vector(0)', "{{stage}}"),
            "A stage that grew alone: its prompt or model changed (`eden cost --by stage`).",
            "bars",
            unit="currencyUSD",
            decimals=2,
            runbook="spend-over-pace",
        ),
    ),
)
OVERVIEW = Board(
    "eden-overview",
    "Eden: overview",
    "Is it healthy, is anything behind, what does it cost?",
    (ANSWER, MOVES, OTHERS),
)
