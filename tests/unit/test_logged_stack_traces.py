"""What a stack trace in a log shows: where it happened, and no values."""

import pytest
import structlog

from eden_memory.structured_logs import warnings_only


def test_a_stack_trace_shows_no_values_of_variables(capsys: pytest.CaptureFixture[str]) -> None:
    secret = "eden_" + "x" * 43
    with warnings_only():
        try:
            raise ValueError(secret)
        except ValueError:
            structlog.get_logger().exception("a request failed")
    shown = capsys.readouterr().err
    assert "ValueError" in shown
    assert "test_logged_stack_traces.py" in shown
    assert secret not in shown
