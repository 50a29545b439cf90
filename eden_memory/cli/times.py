"""Times as people give them to commands."""

from datetime import UTC, datetime

import typer


def moment(text: str) -> datetime:
    """Read an ISO date or time; one without a zone is in UTC. A usage error for anything else."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        said = f"{text!r} is no time; give an ISO date or time, as 2026-01-31 or 2026-01-31T09:00"
        raise typer.BadParameter(said) from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
