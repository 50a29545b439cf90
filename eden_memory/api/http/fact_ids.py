"""Ids of facts in paths: they may hold slashes."""

from typing import Annotated

from fastapi import Path

FactId = Annotated[
    str,
    Path(
        pattern=r"^[A-Za-z0-9_.~%:/-]+$",
        max_length=4_096,
        description="As lists and searches give it; percent-encoded in the path.",
        examples=["0b4e9c1d2f"],
    ),
]
