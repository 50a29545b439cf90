"""What the package logs inside an application: nothing that it did not ask for."""

import subprocess
import sys

import pytest

LOG = (
    "from eden_memory.logs import LibraryLogger; log = LibraryLogger('eden.x'); log.warning('gone', by='us')"
)
TO_LOGGING = (
    "import logging, sys; logging.basicConfig(stream=sys.stdout, format='%(name)s %(levelname)s %(message)s')"
)
TO_STRUCTLOG = "import structlog; structlog.configure(processors=[structlog.processors.KeyValueRenderer()])"


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("", ""),
        (TO_LOGGING, "eden_memory WARNING gone by='us'"),
        (TO_STRUCTLOG, "by='us' event='gone'"),
    ],
    ids=["nothing configured", "logging", "structlog"],
)
def test_the_package_logs_only_where_its_application_has_said_to(before: str, said: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", f"{before}\n{LOG}"], capture_output=True, text=True, check=True
    )
    assert (ended.stdout.strip(), ended.stderr) == (said, "")


def test_a_failure_is_logged_with_its_trace() -> None:
    code = f"{TO_LOGGING}\n{LOG}\ntry:\n  1/0\nexcept Exception:\n  log.exception('broke')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "eden_memory ERROR broke" in ended.stdout
    assert "ZeroDivisionError" in ended.stdout
