"""Recognises by MongoDB's error codes what an error means: no access, or only documents that are there already."""

from collections.abc import Mapping
from typing import Any

from pymongo.errors import BulkWriteError, OperationFailure

UNAUTHORIZED, AUTHENTICATION_FAILED = 13, 18
DUPLICATE_KEY = 11_000


def refused_by_mongodb(error: BaseException) -> bool:
    """Whether MongoDB denies this program the right to do what it asked for."""
    return isinstance(error, OperationFailure) and error.code in (UNAUTHORIZED, AUTHENTICATION_FAILED)


def wrong_account(error: BaseException) -> bool:
    """Whether MongoDB rejects the user name or the password."""
    return isinstance(error, OperationFailure) and error.code == AUTHENTICATION_FAILED


def only_duplicates(error: BulkWriteError) -> None:
    """Raise the error unless all that it refuses is there already, and a majority has the rest."""
    details: Mapping[str, Any] = error.details or {}
    failed: list[Mapping[str, Any]] = details.get("writeErrors", [])
    if details.get("writeConcernErrors") or any(failure["code"] != DUPLICATE_KEY for failure in failed):
        raise error
