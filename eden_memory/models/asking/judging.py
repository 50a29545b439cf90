"""Whether an answer is one: complete, as the provider says, and JSON of the wanted shape."""

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from eden_memory.models.calls import Completion
from eden_memory.models.providers.found_json import found_json
from eden_memory.models.question import A

TRUNCATED = "truncated"
REFUSED = "refused"
EMPTY = "empty"
ERRORS_NAMED = 8


def cut_short(completion: Completion) -> str | None:
    """Return what is wrong with an answer before its content is read."""
    if completion.finish == "truncated":
        return TRUNCATED
    if completion.finish == "refused":
        return REFUSED
    return None if completion.text.strip() else EMPTY


def parsed(text: str, answer: type[A]) -> A | str:
    """The answer in a text, or what is wrong with it, as the model is told (without what it said)."""
    if not text.strip():
        return EMPTY
    try:
        return answer.model_validate_json(found_json(text))
    except ValidationError as error:
        return _named(error)


def _named(error: ValidationError) -> str:
    errors = error.errors(include_url=False, include_input=False, include_context=False)
    lines = [f"{_place(error_details)}: {error_details['msg']}" for error_details in errors[:ERRORS_NAMED]]
    return "; ".join([*lines, *(["and more"] if len(errors) > ERRORS_NAMED else [])])


def _place(error: ErrorDetails) -> str:
    """The path of a field; one that the answer adds is not named, as its name may be anything."""
    added = error["type"] == "extra_forbidden"
    path = error["loc"][:-1] if added else error["loc"]
    return ".".join(map(str, path)) or "the answer"
