"""Kafka's errors, grouped by meaning; empty groups if its client is not installed."""

from typing import Any

Errors = tuple[type[Exception], ...]


def _errors(*names: str) -> Errors:
    try:
        from aiokafka import errors  # noqa: PLC0415 - the extra `run`
    except ModuleNotFoundError:
        return ()
    found: Any = errors
    return tuple(getattr(found, name) for name in names)


KAFKA_ERRORS = _errors("KafkaError")
REFUSED = _errors(
    "AuthenticationFailedError",
    "ClusterAuthorizationFailedError",
    "GroupAuthorizationFailedError",
    "SaslAuthenticationFailed",
    "TopicAuthorizationFailedError",
)
"""The brokers refuse this program the right to do what it asked for."""
RECORD_TOO_LARGE = _errors("MessageSizeTooLargeError")
TOO_LARGE = (*RECORD_TOO_LARGE, *_errors("RecordListTooLargeError"))
UNPUBLISHABLE = (
    *TOO_LARGE,
    *_errors("InvalidTopicError", "InvalidTimestampError", "PolicyViolationError"),
)
"""The brokers refuse a record for good, however often it is sent."""
