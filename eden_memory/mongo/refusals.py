"""Tells by MongoDB's error codes whether it refuses this program."""

from pymongo.errors import OperationFailure

UNAUTHORIZED, AUTHENTICATION_FAILED = 13, 18


def refused_by_mongodb(error: BaseException) -> bool:
    """Whether MongoDB says that this program may not do what it asked for."""
    return isinstance(error, OperationFailure) and error.code in (UNAUTHORIZED, AUTHENTICATION_FAILED)


def wrong_account(error: BaseException) -> bool:
    """Whether MongoDB does not accept the user name or the password."""
    return isinstance(error, OperationFailure) and error.code == AUTHENTICATION_FAILED
