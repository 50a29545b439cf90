"""Why a value does not fit its model, without the value."""

from pydantic import ValidationError
from pydantic_core import ErrorDetails

MOST = 5


def reasons(error: ValidationError) -> str:
    """Return where and which rule, at most five; field names, list indexes and our own rules' words only."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    said = [f"{_where(one)}: {_rule(one)}" for one in found[:MOST]]
    return "; ".join(said) + ("; …" if len(found) > MOST else "")


def _where(one: ErrorDetails) -> str:
    """The path of a field; the name of a field that does not exist was given, so it is left out."""
    named = one["loc"][:-1] if one["type"] == "extra_forbidden" else one["loc"]
    return ".".join(map(str, named)) or "value"


def _rule(one: ErrorDetails) -> str:
    return one["msg"].removeprefix("Value error, ") if one["type"] == "value_error" else one["type"]
