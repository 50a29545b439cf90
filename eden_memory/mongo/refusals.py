"""Recognises by MongoDB's error codes whether it refuses this program."""

from pymongo.errors import OperationFailure

UNAUTHORIZED, AUTHENTICATION_FAILED = 13, 18


def refused_by_mongodb(error: BaseException) -> bool:
    """Whether MongoDB denies this program the right to do what it asked for."""
    return isinstance(error, OperationFailure) and error.code in (UNAUTHORIZED, AUTHENTICATION_FAILED)


def wrong_account(error: BaseException) -> bool:
    """Whether MongoDB rejects the user name or the password."""
    return isinstance(error, OperationFailure) and error.code == AUTHENTICATION_FAILED
