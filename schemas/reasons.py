"""Why a value does not fit its model, without the value."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # help is shown without pydantic
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

MOST = 5


def reasons(error: "ValidationError") -> str:
    """Return where and which rule, at most five; field names, list indexes and our own rules' words only."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    said = [f"{_where(error_details)}: {_rule(error_details)}" for error_details in found[:MOST]]
    return "; ".join(said) + ("; …" if len(found) > MOST else "")


def _where(error_details: "ErrorDetails") -> str:
    """The path of a field; the name of a field that does not exist was given, so it is left out."""
    named = error_details["loc"][:-1] if error_details["type"] == "extra_forbidden" else error_details["loc"]
    return ".".join(map(str, named)) or "value"


def _rule(error_details: "ErrorDetails") -> str:
    return (
        error_details["msg"].removeprefix("Value error, ")
        if error_details["type"] == "value_error"
        else error_details["type"]
    )
