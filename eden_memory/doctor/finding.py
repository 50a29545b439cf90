"""The result of one check."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the table: what was looked at, how it is, and what to do about it."""

    check: str
    state: State
    what: str
    hint: str = ""


def failed(findings: Iterable[Finding]) -> bool:
    """Whether something has to be put right before the program can do its work."""
    return any(finding.state == "fail" for finding in findings)
