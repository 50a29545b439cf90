"""Logs of a command that prints an answer: stack traces without values, and nothing configured afterwards."""

import pytest
import structlog

from eden_memory.cli.structured_logs import warnings_only


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


def test_a_program_that_did_not_configure_structured_logs_gets_none_from_a_command() -> None:
    with warnings_only():
        pass
    assert not structlog.is_configured()


def test_a_program_keeps_the_structured_logs_that_it_configured() -> None:
    structlog.configure(processors=[structlog.processors.KeyValueRenderer()])
    with warnings_only():
        pass
    assert structlog.is_configured()
