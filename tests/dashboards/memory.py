"""Memory: growth, decisions, consolidation, word limits, context freshness, search and gateway."""

from tests.dashboards.panels import (
    OF,
    Board,
    Panel,
    Query,
    Row,
    lately,
    one,
    per_second,
    quantile,
    so_far,
    total,
)


def documents(collection: str) -> str:
    """About how many there are."""
    return f'max(eden_memory_documents{{{OF},collection="{collection}"}})'


ANSWER = Row(
    "",
    (
        Panel(
            "How many facts are there?",
            one(documents("facts")),
            "Retired ones included. EDEN limits of an agent's stream retire the oldest.",
            "stat",
        ),
        Panel(
            "How many reflections?",
            one(documents("reflections")),
            "Absorbed ones included: they are the history of the blobs.",
            "stat",
        ),
        Panel(
            "How many scopes have a blob?",
            one(documents("consolidated")),
            "One for each session, user, group, agent and shard with enough reflections.",
            "stat",
        ),
        Panel(
            "How long from a window to the fresh context (95 %)?",
            one(f"{quantile(0.95, 'eden_message_to_context_seconds', OF, span='1h')} >= 0 or vector(0)"),
            "Lag in Pipeline and call durations in LLM and cost show where the time goes.",
            "stat",
            unit="s",
            orange=120,
            red=900,
            runbook="context-not-fresh",
        ),
        Panel(
            "Since when is a scope due for consolidation?",
            one(f"max(eden_consolidation_due_seconds{{{OF}}})"),
            "Minutes are normal in a burst (a scope consolidates every 30 s at most); an hour is not.",
            "stat",
            unit="s",
            orange=300,
            red=900,
            runbook="consolidation-stuck",
        ),
        Panel(
            "How many sessions wait for a document?",
            one(f"sum(max by (partition) (eden_trigger_waiting_sessions{{{OF}}})) or vector(0)"),
            "Their session or agent document is missing: `eden windows SESSION` says which.",
            "stat",
            orange=1,
            red=100,
            runbook="no-formation",
        ),
    ),
)
FORMING = Row(
    "What forms",
    (
        Panel(
            "Why do windows close?",
            one(lately("eden_trigger_windows", OF, "1h", "because"), "{{because}}"),
            "Only cold ones: sessions are short; each costs as much as a full one.",
            runbook="no-formation",
        ),
        Panel(
            "What is decided about facts?",
            one(lately("eden_facts_decided", OF, "1h", "decision"), "{{decision}}"),
            "Mostly NONE: users repeat themselves. Many DELETE: facts change; are they facts?",
        ),
        Panel(
            "Whose facts?",
            one(lately("eden_facts_decided", OF, "1h", "scope"), "{{scope}}"),
            "Nothing in user scope: sessions with several users form none.",
        ),
        Panel(
            "Whose reflections?",
            one(lately("eden_reflections_formed", OF, "1h", "scope"), "{{scope}}"),
            "Session reflections always form; others by the agent's switches.",
        ),
        Panel(
            "What became of what models stated?",
            one(lately("eden_extraction_items", OF, "1h", "how"), "{{how}}"),
            "Much beyond limits, or demoted: guidance of `memory_streams`, or another model.",
        ),
        Panel(
            "What did deduplication do?",
            (
                Query(lately("eden_dedup", OF, "1h", "what"), "{{what}}"),
                Query(f"max(eden_dedup_incomparable_facts{{{OF}}})", "facts of another embedding model"),
            ),
            "void: the model names facts that it was not shown. Incomparable facts: `eden reembed`.",
        ),
        Panel(
            "Which messages form nothing?",
            (
                Query(lately("eden_trigger_empty_messages", OF, "1h"), "without text"),
                Query(lately("eden_trigger_opted_out_messages", OF, "1h"), "switched off"),
                Query(lately("eden_trigger_missing_messages", OF, "1h"), "gone when merged"),
            ),
            "Switched off by session or user: that is as they want it.",
        ),
        Panel(
            "How does memory grow?",
            one(
                f"max by (collection) (eden_memory_documents{{{OF}}})",
                "{{collection}}",
            ),
            "outcomes and answers grow with formations; windows are erased after a week.",
        ),
    ),
)
BLOBS = Row(
    "Consolidation and contexts",
    (
        Panel(
            "How many blobs are written, and why?",
            one(lately("eden_consolidations", OF, "1h", "scope, because"), "{{scope}}: {{because}}"),
            "None though scopes are due: the runbook.",
            runbook="consolidation-stuck",
        ),
        Panel(
            "How many blobs had to be cut to their limit?",
            one(f'sum(increase(eden_consolidations_total{{{OF},cut="true"}}[24h])) or vector(0)'),
            "Twice over the limit: raise the scope's word limit, or choose a model that counts better.",
            orange=1,
            red=20,
        ),
        Panel(
            "How full are blobs?",
            (
                Query(so_far(0.5, "eden_blob_limit_share", OF, "scope"), "{{scope}}, half"),
                Query(so_far(0.9, "eden_blob_words", OF, "scope"), "{{scope}}, words (90 %)"),
            ),
            "Always at the limit: what is old gives way; raise the limit in `memory_streams`.",
        ),
        Panel(
            "How many scopes are due?",
            (
                Query(f"max(eden_consolidation_due_scopes{{{OF}}})", "scopes"),
                Query(f"max(eden_consolidation_due_seconds{{{OF}}})", "seconds, the longest"),
            ),
            "Growing: consolidation is slower than reflections come, or stands still.",
            runbook="consolidation-stuck",
        ),
        Panel(
            "How soon do contexts show a write?",
            (
                Query(quantile(0.5, "eden_context_delay_seconds", OF), "half"),
                Query(quantile(0.95, "eden_context_delay_seconds", OF), "95 %"),
            ),
            "Above seconds: context-cache is behind, or a scope has many active sessions.",
            unit="s",
            orange=5,
            red=30,
            runbook="context-not-fresh",
        ),
        Panel(
            "How are contexts built and read?",
            (
                Query(per_second("eden_contexts_built", OF), "built"),
                Query(per_second("eden_context_reads", OF, "how"), "read: {{how}}"),
            ),
            "Read from the store again and again: the process hears of no changes; see its log.",
            unit="ops",
            runbook="context-not-fresh",
        ),
    ),
)
SEARCHING = Row(
    "Search",
    (
        Panel(
            "What is searched, and is anything found?",
            one(per_second("eden_searches", OF, "kind, found"), "{{kind}}: {{found}}"),
            "Mostly nothing: nothing has formed for those who ask, or their `score_threshold` is high.",
            unit="ops",
        ),
        Panel(
            "How long does a search take (95 %)?",
            one(quantile(0.95, "eden_search_seconds", OF, "stage"), "{{stage}}"),
            "`all` is the whole. embedding: the provider. Lists: MongoDB, or scopes that are not kept yet.",
            unit="s",
            orange=0.5,
            red=2,
        ),
        Panel(
            "What do searches do without?",
            (
                Query(per_second("eden_search_degraded", OF, "part"), "without {{part}}"),
                Query(per_second("eden_search_uncounted_accesses", OF), "accesses not counted"),
            ),
            "It failed and the search went on: the log says why. embedding: is the provider away?",
            unit="ops",
            orange=0.01,
            red=1,
        ),
        Panel(
            "How much memory do scopes kept for searching take?",
            one(f"sum(eden_search_kept_bytes{{{OF}}})", "all processes"),
            "At its bound in each process, and searches slow: raise `EDEN_SEARCH_MEMORY_BYTES`.",
            unit="bytes",
        ),
        Panel(
            "How many scopes are kept to be searched?",
            one(f"sum(eden_search_kept_scopes{{{OF}}})", "all processes"),
            "Few though many users search: the memory for them is small; each miss reads the scope anew.",
        ),
    ),
)
DOORS = Row(
    "Doors: HTTP, MCP, gateway",
    (
        Panel(
            "What is asked of the doors?",
            one(per_second("eden_http_requests", OF, "route, status"), "{{route}} {{status}}"),
            "5xx: the log names the request. 4xx: the caller. 429: a key's own limit.",
            unit="ops",
        ),
        Panel(
            "How long do requests take (95 %)?",
            (
                Query(quantile(0.95, "eden_http_request_seconds", OF, "route"), "{{route}}"),
                Query(total("eden_http_event_streams", OF), "event streams open"),
            ),
            "Searches wait for an embedding; contexts should take milliseconds.",
            unit="s",
            orange=0.5,
            red=2,
        ),
        Panel(
            "How do chats through the gateway end?",
            (
                Query(per_second("eden_gateway_chats", OF, "how"), "{{how}}"),
                Query(per_second("eden_gateway_turns", OF, "how"), "turns: {{how}}"),
            ),
            "error: the provider's own. lost turns: MongoDB did not take them; nothing forms from those.",
            unit="ops",
        ),
        Panel(
            "What does memory add to a chat's time (95 %)?",
            one(quantile(0.95, "eden_gateway_added_seconds", OF), "95 %"),
            "Most of it is the query's embedding.",
            unit="s",
            orange=0.3,
            red=1,
        ),
        Panel(
            "What does memory give to chats?",
            (
                Query(per_second("eden_gateway_memory_hits", OF), "facts"),
                Query(per_second("eden_gateway_degraded", OF, "part, why"), "without {{part}}: {{why}}"),
            ),
            "Chats never wait for memory that is slow: without it they go on.",
            unit="ops",
        ),
    ),
)
MEMORY = Board(
    "eden-memory",
    "Eden: memory",
    "How memory grows, what is decided, how full and how fresh it is.",
    (ANSWER, FORMING, BLOBS, SEARCHING, DOORS),
)
