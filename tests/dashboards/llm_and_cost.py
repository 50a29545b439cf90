"""LLM and cost: by stage, model and agent; per 1,000 messages; what is left of budgets; how providers answer."""

from tests.dashboards.panels import (
    AGENT,
    OF,
    STAGE,
    Board,
    Panel,
    Query,
    Row,
    lately,
    one,
    per_second,
    quantile,
    total,
)

DAY, MONTH = f'{AGENT},period="day"', f'{AGENT},period="month"'
MESSAGES = f'sum(increase(eden_tailer_records_total{{{OF},record="MessageRecorded"}}[24h]))'


def budget(what: str) -> str:
    """Every budget's: all processes show the same."""
    return f"max by (budget, per) (eden_budget_{what}_usd{{{OF}}})"


LEFT = f"min({budget('limit')} - {budget('spent')} - {budget('in_flight')})"
CALLED = f'{OF},stage=~"$stage"'
ANSWER = Row(
    "",
    (
        Panel(
            "What has it cost today?",
            one(f"sum(eden_spent_usd{{{DAY}}}) or vector(0)"),
            "More than usual: which stage, model or agent grew? `eden budget` sets a limit.",
            "stat",
            unit="currencyUSD",
            decimals=2,
            runbook="spend-over-pace",
        ),
        Panel(
            "And this month?",
            one(f"sum(eden_spent_usd{{{MONTH}}}) or vector(0)"),
            "The same of the calendar month (UTC); `eden cost month` has every detail.",
            "stat",
            unit="currencyUSD",
            decimals=2,
            runbook="spend-over-pace",
        ),
        Panel(
            "What do 1,000 messages cost?",
            one(
                f"1000 * sum(increase(eden_llm_cost_usd_total{{{AGENT}}}[24h])) / ({MESSAGES} > 0) or vector(0)"
            ),
            "Of the last 24 hours. Short windows cost more each: see why windows close, in Memory.",
            "stat",
            unit="currencyUSD",
            decimals=3,
        ),
        Panel(
            "What is left of the tightest budget?",
            one(LEFT),
            "At 0 windows wait, and nothing is lost: `eden budget` raises it, or the next period begins.",
            "stat",
            unit="currencyUSD",
            orange=1,
            red=0.1,
            decimals=2,
            runbook="budget-reached",
        ),
        Panel(
            "How many windows wait for a budget?",
            one(f"max(eden_budget_waiting_windows{{{OF}}})"),
            "They are formed when the next period begins or the limit is raised.",
            "stat",
            orange=1,
            red=100,
            runbook="budget-reached",
        ),
        Panel(
            "Does a provider stay away?",
            one(f"max(eden_provider_away{{{OF}}}) or vector(0)"),
            "Check the provider's status page, the key and the quota; stages go on by themselves.",
            "stat",
            red=1,
            runbook="provider-failing",
        ),
    ),
)
COST = Row(
    "Cost",
    (
        Panel(
            "Which stage spends (today)?",
            one(f"sum by (stage) (eden_spent_usd{{{DAY}}})", "{{stage}}"),
            "Reflections and consolidation use the larger models; facts ask most often.",
            "bars",
            unit="currencyUSD",
            decimals=4,
            runbook="spend-over-pace",
        ),
        Panel(
            "Which model spends (today)?",
            one(f"sum by (model) (eden_spent_usd{{{DAY}}})", "{{model}}"),
            "A model nobody chose: EDEN_MODELS_* or an agent's `memory_streams`.",
            "bars",
            unit="currencyUSD",
            decimals=4,
            runbook="spend-over-pace",
        ),
        Panel(
            "Which agent spends (today)?",
            one(f"topk(10, sum by (agent) (eden_spent_usd{{{DAY}}}))", "{{agent}}"),
            "The ten largest; all of them by `eden cost --by agent`. A budget can be an agent's own.",
            "bars",
            unit="currencyUSD",
            decimals=4,
            runbook="spend-over-pace",
        ),
        Panel(
            "What is spent an hour?",
            one(f"3600 * sum by (stage) (rate(eden_llm_cost_usd_total{{{AGENT}}}[10m]))", "{{stage}}"),
            "A step without more messages: repairs, retries, a replay, or another model.",
            unit="currencyUSD",
            runbook="spend-over-pace",
        ),
        Panel(
            "How much of each budget is used?",
            (
                Query(
                    f"{budget('spent')} / {budget('limit')}",
                    "{{budget}} a {{per}}, spent",
                ),
                Query(
                    f"{budget('in_flight')} / {budget('limit')}",
                    "{{budget}} a {{per}}, in flight",
                ),
            ),
            "Spent and in flight together reach 100 %: windows wait.",
            unit="percentunit",
            orange=0.8,
            red=1,
            runbook="budget-reached",
        ),
        Panel(
            "Which budget holds windows back?",
            (
                Query(f"max by (budget, per) (eden_budget_reached{{{OF}}})", "{{budget}} a {{per}}"),
                Query(lately("eden_budget_held_back_windows", OF, "1h"), "held back in an hour"),
                Query(lately("eden_budget_unpriced_windows", OF, "24h"), "published without a price (24 h)"),
            ),
            "Raise it or wait. Without a price a budget cannot count: name a model that has one.",
            red=1,
            runbook="budget-reached",
        ),
        Panel(
            "Do the stored totals agree with what was called?",
            (
                Query(f"sum(eden_llm_cost_usd_total{{{OF}}})", "called (since the processes' starts)"),
                Query(
                    f"sum(eden_usage_cost_usd_total{{{OF}}})", "in the totals (since the processes' starts)"
                ),
                Query(lately("eden_usage_repeated_calls", OF, "24h"), "records that came again (24 h)"),
            ),
            "Totals behind: the usage group's lag in Pipeline.",
            unit="currencyUSD",
            runbook="group-lag",
        ),
        Panel(
            "Which calls have no price?",
            (
                Query(lately("eden_llm_unpriced_calls", STAGE, "24h", "model"), "{{model}}"),
                Query(lately("eden_usage_unpriced_calls", STAGE, "24h", "model"), "{{model}}, in the totals"),
            ),
            "Their cost is unknown, not zero: budgets do not see it. Local models have none, which is right.",
            orange=1,
        ),
    ),
)
CALLS = Row(
    "Calls",
    (
        Panel(
            "How do calls end?",
            one(per_second("eden_llm_calls", AGENT, "outcome"), "{{outcome}}"),
            "rate_limited: the guard halves by itself. provider_error: an outage. invalid: the model does not fit.",
            unit="ops",
            runbook="provider-failing",
        ),
        Panel(
            "Which share of calls fails?",
            one(
                f'sum by (provider) (rate(eden_llm_calls_total{{{AGENT},outcome!="answered"}}[5m])) '
                f"/ (sum by (provider) (rate(eden_llm_calls_total{{{AGENT}}}[5m])) > 0) or vector(0)",
                "{{provider}}",
            ),
            "Above a half for minutes: check the provider.",
            unit="percentunit",
            orange=0.1,
            red=0.5,
            runbook="provider-failing",
        ),
        Panel(
            "How many answers had to be asked for again?",
            (
                Query(per_second("eden_llm_repairs", CALLED, "model"), "{{model}}"),
                Query(per_second("eden_usage_calls", CALLED, "model"), "{{model}}, all calls counted"),
            ),
            "Often with one model: it does not keep to schemas; choose another for that stage.",
            unit="ops",
        ),
        Panel(
            "How long do calls take?",
            (
                Query(
                    quantile(0.5, "gen_ai_client_operation_duration_seconds", CALLED, "gen_ai_request_model"),
                    "{{gen_ai_request_model}}, half",
                ),
                Query(
                    quantile(
                        0.95, "gen_ai_client_operation_duration_seconds", CALLED, "gen_ai_request_model"
                    ),
                    "{{gen_ai_request_model}}, 95 %",
                ),
            ),
            "Lag in seconds follows this. Longer than EDEN_MODELS_TIMEOUT_SECONDS counts as failed.",
            unit="s",
            orange=30,
            red=100,
            runbook="provider-failing",
        ),
        Panel(
            "How many calls may run, and do?",
            (
                Query(f"sum by (provider) (eden_provider_limit{{{OF}}})", "{{provider}}, may"),
                Query(f"sum by (provider) (eden_provider_running{{{OF}}})", "{{provider}}, do"),
            ),
            "The limit falls on 429. At the limit with lag growing: a higher quota, or EDEN_MODELS_AT_ONCE.",
            runbook="provider-failing",
        ),
        Panel(
            "Which tokens go over the wire?",
            one(per_second("eden_llm_tokens", AGENT, "kind"), "{{kind}}"),
            "cached is a part of input, reasoning of output. Reasoning grows: set EDEN_MODELS_EFFORT.",
            unit="ops",
        ),
        Panel(
            "How large are calls (95 %)?",
            one(
                quantile(0.95, "gen_ai_client_token_usage", CALLED, "gen_ai_token_type, stage"),
                "{{stage}}, {{gen_ai_token_type}}",
            ),
            "Input grows with blobs and windows: EDEN_WINDOWS_* and word limits.",
        ),
        Panel(
            "Which share of the input was cached?",
            one(
                f'sum by (model) (rate(eden_llm_tokens_total{{{AGENT},kind="cached"}}[10m])) '
                f'/ (sum by (model) (rate(eden_llm_tokens_total{{{AGENT},kind="input"}}[10m])) > 0) or vector(0)',
                "{{model}}",
            ),
            "Nothing to repair: cached input costs less, and a change of prompts empties the cache.",
            unit="percentunit",
        ),
        Panel(
            "How many calls has each stage made?",
            one(total("eden_llm_calls_total", AGENT, "stage"), "{{stage}}"),
            "Two a window, one for each scope that has candidates, and consolidations.",
        ),
    ),
)
LLM_AND_COST = Board(
    "eden-llm",
    "Eden: LLM and cost",
    "What it costs, who spends it, what is left, and how providers answer.",
    (ANSWER, COST, CALLS),
)
