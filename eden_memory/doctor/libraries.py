"""Python and the libraries, against what this version of the program was made for."""

import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

from eden_memory.doctor.finding import Finding

DISTRIBUTION = "eden-memory"


def libraries() -> Finding:
    """Every required library is there, in a version that fits."""
    wrong = list(_unmet(requires(DISTRIBUTION) or []))
    if wrong:
        return Finding("libraries", "fail", "; ".join(wrong), "`make setup` installs the versions pinned.")
    python = ".".join(map(str, sys.version_info[:3]))
    named = ", ".join(f"{name} {version(name)}" for name in ("pymongo", "aiokafka", "confluent-kafka"))
    return Finding("libraries", "ok", f"Python {python}, {named}")


def _unmet(wanted: list[str]) -> Iterator[str]:
    for requirement in map(Requirement, wanted):
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            yield f"{requirement.name} is not installed"
            continue
        if not requirement.specifier.contains(found, prereleases=True):
            yield f"{requirement.name} is {found}, not {requirement.specifier}"
