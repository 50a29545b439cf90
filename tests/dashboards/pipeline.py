"""Pipeline: the tailer, lag and throughput by group, lanes, dead letters."""

from tests.dashboards.panels import (
    FOREIGN,
    GROUP,
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
    unsettled,
)

ANSWER = Row(
    "",
    (
        Panel(
            "How far is the tailer behind?",
            one(f"max(eden_tailer_lag_seconds{{{OF}}})"),
            "Is one leading? Is MongoDB slow, or a backfill running?",
            "stat",
            unit="s",
            orange=30,
            red=120,
            runbook="tailer-behind",
        ),
        Panel(
            "How long does its place in the oplog last?",
            one(f"max(eden_tailer_oplog_left_seconds{{{OF}}})"),
            "Below a day, make the oplog larger; once it is gone the collection is merged anew.",
            "stat",
            unit="s",
            orange=86_400,
            red=7_200,
            runbook="oplog-window",
        ),
        Panel(
            "How far is the slowest group behind?",
            one(f"max(kafka_consumergroup_lag_seconds{{{GROUP}}})"),
            "The next row shows which; waiting by reason shows why.",
            "stat",
            unit="s",
            orange=60,
            red=600,
            runbook="group-lag",
        ),
        Panel(
            "How many records does nobody work on yet?",
            one(f"sum(kafka_consumergroup_lag_sum{{{GROUP}}})"),
            "It may be high while it falls. If it grows, see sizing in docs/operations.md.",
            "stat",
            runbook="group-lag",
        ),
        Panel(
            "How many stages stand still?",
            one(f"count(max by (stage) (eden_stage_paused{{{STAGE}}}) > 0) or vector(0)"),
            "The reason stands in `eden status` and in the log.",
            "stat",
            red=1,
            runbook="stage-paused",
        ),
        Panel(
            "How many dead letters are unsettled?",
            one(unsettled()),
            "`eden dead list` shows what and why.",
            "stat",
            orange=1,
            red=20,
            decimals=0,
            runbook="dead-letters",
        ),
    ),
)
TAILER = Row(
    "Tailer",
    (
        Panel(
            "Does the tailer keep up?",
            (
                Query(f"max(eden_tailer_lag_seconds{{{OF}}})", "published changes"),
                Query(f"max(eden_tailer_position_age_seconds{{{OF}}})", "saved resume token"),
            ),
            "The token is saved every few seconds; both growing together: the tailer or MongoDB stands still.",
            unit="s",
            orange=30,
            red=120,
            runbook="tailer-behind",
        ),
        Panel(
            "How many processes lead?",
            (
                Query(total("eden_tailer_leading", OF), "leaders"),
                Query(lately("eden_tailer_takeovers", OF, "1h"), "takeovers in an hour"),
            ),
            "None: start a tailer. Many takeovers: the leader loses its lease; MongoDB or its machine is slow.",
            runbook="tailer-behind",
        ),
        Panel(
            "How long does the oplog reach back?",
            (
                Query(f"max(eden_tailer_oplog_window_seconds{{{OF}}})", "window"),
                Query(f"max(eden_tailer_oplog_left_seconds{{{OF}}})", "left for the tailer"),
            ),
            "Make the oplog larger, or find out who writes so much.",
            unit="s",
            runbook="oplog-window",
        ),
        Panel(
            "How many bytes of the oplog are left for it?",
            one(f"max(eden_tailer_oplog_left_bytes{{{OF}}})", "bytes"),
            "The same in bytes: `replSetResizeOplog`.",
            unit="bytes",
            runbook="oplog-window",
        ),
        Panel(
            "What does the application do?",
            one(per_second("eden_tailer_events", OF, "operation"), "{{operation}}"),
            "Many deletes: is there a TTL index? `eden doctor` says.",
            unit="ops",
        ),
        Panel(
            "What is published?",
            (
                Query(per_second("eden_tailer_records", OF, "record"), "{{record}}"),
                Query(per_second("eden_tailer_commits", OF), "commits"),
            ),
            "No Watermark for a minute: nothing closes cold sessions; see the tailer's log.",
            unit="ops",
            runbook="tailer-behind",
        ),
        Panel(
            "How far is the backfill or merge?",
            (
                Query(f"max(eden_tailer_backfill_messages{{{OF}}})", "read"),
                Query(f"max(eden_tailer_backfill_total_messages{{{OF}}})", "of"),
            ),
            "It goes on where it stopped. A merge begins when the place in the stream was lost.",
            runbook="oplog-window",
        ),
        Panel(
            "What could the tailer not carry?",
            (
                Query(lately("eden_tailer_unmapped", OF, "1h"), "dead letters"),
                Query(lately("eden_tailer_empty_messages", OF, "1h"), "without text"),
                Query(lately("eden_tailer_authorless_messages", OF, "1h"), "without an author"),
                Query(lately("eden_tailer_undated_messages", OF, "1h"), "without a time"),
                Query(lately("eden_tailer_parts_left_out", OF, "1h"), "parts without text"),
                Query(lately("eden_tailer_position_lost", OF, "24h"), "place lost (24 h)"),
                Query(lately("eden_tailer_missing_messages", OF, "24h"), "gone when merged (24 h)"),
            ),
            "Dead letters: field paths are wrong (`eden doctor`). Empty messages are tool calls and placeholders. "
            "Without an author: what a user says there is no user's own memory (`eden doctor`).",
            runbook="dead-letters",
        ),
    ),
)
GROUPS = Row(
    "Groups",
    (
        Panel(
            "How long has each group's first unread record waited?",
            one(f"max by (consumergroup) (kafka_consumergroup_lag_seconds{{{GROUP}}})", "{{consumergroup}}"),
            "Growing as fast as time: it stands still. Slower: it needs more places or workers.",
            unit="s",
            orange=60,
            red=600,
            runbook="group-lag",
        ),
        Panel(
            "How many records is each group behind?",
            (
                Query(
                    f"sum by (consumergroup) (kafka_consumergroup_lag_sum{{{GROUP}}})", "{{consumergroup}}"
                ),
                Query(
                    f"max by (consumergroup) (kafka_consumergroup_lag{{{GROUP}}})",
                    "{{consumergroup}}, worst partition",
                ),
            ),
            "One partition alone: a hot session or scope holds back its own lane.",
            runbook="group-lag",
        ),
        Panel(
            "How many records a second does each group get through?",
            one(
                f"sum by (consumergroup) (rate(kafka_consumergroup_current_offset{{{GROUP}}}[{'$__rate_interval'}]))",
                "{{consumergroup}}",
            ),
            "Against what is produced (beside): less means that lag grows.",
            unit="ops",
            runbook="group-lag",
        ),
        Panel(
            "How many records a second does each topic get?",
            one(
                f"sum by (topic) (rate(kafka_topic_partition_current_offset{{{OF}}}[{'$__rate_interval'}]))",
                "{{topic}}",
            ),
            "Nothing for long on `chat.messages`: the tailer.",
            unit="ops",
        ),
        Panel(
            "How much does each topic hold?",
            one(
                f"sum by (topic) (kafka_topic_partition_current_offset{{{OF}}} "
                f"- kafka_topic_partition_oldest_offset{{{OF}}})",
                "{{topic}}",
            ),
            "Topics kept until consumed grow while a declared group stands still.",
        ),
        Panel(
            "How many consumers does each group have?",
            one(f"max by (consumergroup) (kafka_consumergroup_members{{{GROUP}}})", "{{consumergroup}}"),
            "0 while it has lag: nobody runs it. A group of an old consumer or a dropped namespace: delete it.",
            runbook="group-lag",
        ),
        Panel(
            "How far are the groups of other programs behind?",
            one(
                f"max by (consumergroup) (kafka_consumergroup_lag_seconds{{{FOREIGN}}})", "{{consumergroup}}"
            ),
            "Your own consumers: memory does not wait for them. A group that nobody runs any more: delete it.",
            unit="s",
            orange=600,
            runbook="group-lag",
        ),
        Panel(
            "How old are these figures?",
            (
                Query(f"time() - max(eden_lag_read_timestamp_seconds{{{OF}}})", "age"),
                Query(f"max(eden_lag_read_seconds{{{OF}}})", "one reading took"),
            ),
            "Nobody reads them: is `eden run lag` running? Does Kafka answer?",
            unit="s",
            orange=15,
            red=60,
            runbook="group-lag",
        ),
    ),
)
LANES = Row(
    "Lanes",
    (
        Panel(
            "How much does each stage work on at once?",
            one(total("eden_stage_running", STAGE, "stage"), "{{stage}}"),
            "At EDEN_RUN_AT_ONCE for long while lag grows: more processes, or a higher bound.",
        ),
        Panel(
            "Why do records wait?",
            one(total("eden_stage_waiting_records", STAGE, "reason"), "{{reason}}"),
            "order: hot keys. turn: no free place. retry: something fails. pause: a stage stands still.",
        ),
        Panel(
            "How much is fetched and unfinished?",
            (
                Query(total("eden_stage_pending_records", STAGE, "stage"), "{{stage}}"),
                Query(
                    total("eden_stage_held_back_partitions", STAGE, "stage"),
                    "{{stage}}, partitions held back",
                ),
            ),
            "A partition held back is full: a slow key in it, or a stage that stands still.",
        ),
        Panel(
            "How old is the oldest unfinished record?",
            one(f"max by (stage) (eden_stage_oldest_unfinished_seconds{{{STAGE}}})", "{{stage}}"),
            "Longer than a handler may take: it is tried again and again; see failed attempts.",
            unit="s",
            orange=300,
            red=1_800,
            runbook="group-lag",
        ),
        Panel(
            "How much is finished but cannot be committed?",
            one(total("eden_stage_commit_gap_records", STAGE, "stage"), "{{stage}}"),
            "It comes again after a restart (and is found in the ledger). High: one record holds back its partition.",
        ),
        Panel(
            "How do records end?",
            one(per_second("eden_stage_records", STAGE, "stage, how"), "{{stage}} {{how}}"),
            "dead: the dead letters' runbook. skipped: events that the stage does not read.",
            unit="ops",
            runbook="dead-letters",
        ),
        Panel(
            "How long do handlers take (95 %)?",
            one(quantile(0.95, "eden_stage_handler_seconds", STAGE, "stage"), "{{stage}}"),
            "Stages that ask models take seconds; the others milliseconds, else MongoDB is slow.",
            unit="s",
        ),
        Panel(
            "What fails, and how?",
            one(per_second("eden_stage_failed_attempts", STAGE, "stage, kind"), "{{stage}} {{kind}}"),
            "away: MongoDB or Kafka. provider: the models. bug: please report it. permanent: dead letters.",
            unit="ops",
        ),
        Panel(
            "What was decided before and only published again?",
            one(per_second("eden_stage_republished", STAGE, "stage"), "{{stage}}"),
            "After a restart or rebalance some; always some: offsets are not committed.",
            unit="ops",
        ),
        Panel(
            "How often do partitions move?",
            (
                Query(lately("eden_stage_rebalances", STAGE, "1h", "stage"), "{{stage}}"),
                Query(
                    lately("eden_stage_pauses", STAGE, "1h", "stage, kind"),
                    "{{stage}} began to pause: {{kind}}",
                ),
            ),
            "A few at a deployment. Without one: processes die or block; see their logs.",
        ),
        Panel(
            "What is given up, and why?",
            one(total("eden_dead_letters_total", STAGE, "stage, reason"), "{{stage}}: {{reason}}"),
            "Since the processes began: `eden dead list`. SchemaViolation: who else writes to the topic?",
            "bars",
            orange=1,
            red=20,
            decimals=0,
            runbook="dead-letters",
        ),
        Panel(
            "How many partitions does each stage hold?",
            one(total("eden_stage_partitions", STAGE, "stage"), "{{stage}}"),
            "Fewer than the topic has for more than a rebalance: nobody reads the rest.",
            runbook="stage-paused",
        ),
    ),
)
PIPELINE = Board(
    "eden-pipeline",
    "Eden: pipeline",
    "From the change stream to the last group: what is behind, and why.",
    (ANSWER, TAILER, GROUPS, LANES),
)
