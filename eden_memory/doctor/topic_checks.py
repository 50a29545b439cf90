"""The topics as the broker has them, against topics.yaml."""

from eden_memory.doctor.finding import Finding
from eden_memory.kafka.topic_admin import TopicAdmin, TopicReport
from eden_memory.kafka.topic_diff import TopicDifference
from eden_memory.kafka.topics import Topics

SHOWN = 3


def topic_settings(admin: TopicAdmin, topics: Topics) -> Finding:
    """Every topic is there, with the partitions and settings declared."""
    return judge_report(admin.report(topics))


def judge_report(report: TopicReport) -> Finding:
    """Of what `eden topics diff` found."""
    absent = [difference for difference in report.differences if difference.what == "missing"]
    others = [difference for difference in report.differences if difference.what != "missing"]
    if absent:
        return Finding(
            "topics", "fail", f"{len(absent)} missing: {_some(absent)}", "Run `eden topics apply`."
        )
    if others:
        hint = "See `eden topics diff`; `eden topics apply` changes what may be changed."
        return Finding("topics", "warn", f"{len(others)} settings differ: {_some(others)}", hint)
    return Finding("topics", "ok", "all as topics.yaml says")


def _some(differences: list[TopicDifference]) -> str:
    names = list(dict.fromkeys(difference.topic for difference in differences))
    return ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
