"""Turn errors of settings, MongoDB and Kafka into messages for people."""

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from tomllib import TOMLDecodeError
from typing import Any, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import SettingsError
from pymongo.errors import ConfigurationError, ConnectionFailure, OperationFailure

from eden_memory.errors import EdenError, Invalid, describe
from eden_memory.mongo.refusals import refused_by_mongodb, wrong_account
from eden_memory.settings import OTHER_VARIABLES, Settings, groups, variables

SETTINGS = "Settings come from EDEN_… and eden.toml: docs/reference/settings.md."
MONGODB = "Check that it runs (`eden status`), and EDEN_MONGODB_URI."
ADDRESS = "Check the host name and the options in EDEN_MONGODB_URI."
ACCOUNT = "Check the user, the password and authSource in EDEN_MONGODB_URI."
TOML = "Correct it there; docs/reference/settings.md lists the settings."
KAFKA = "Check that it runs (`eden status`), and EDEN_KAFKA_BOOTSTRAP."


def told(error: Exception) -> EdenError | None:
    """Return the error as a message for people, without values, which may be secret; None: a bug."""
    if isinstance(error, ExceptionGroup):
        group = cast("Sequence[Exception]", error.exceptions)  # pyright: ignore[reportUnknownMemberType]
        known = [told(exception) for exception in group]
        return known[0] if all(known) else None
    if isinstance(error, EdenError):
        return error
    return _of_settings(error) or _of_mongodb(error) or _of_kafka(error)


def _detail(error: Exception) -> str:
    return describe(error).partition(": ")[2]


def _of_settings(error: Exception) -> EdenError | None:
    match error:
        case ValidationError() if error.title == "Settings":
            wrong = "; ".join(map(_wrong, error.errors(include_url=False, include_input=False)))
            return Invalid(f"settings are not valid: {wrong}", SETTINGS)
        case TOMLDecodeError():
            return Invalid(
                f"settings cannot be read: {Settings.model_config.get('toml_file')}: {error}", TOML
            )
        case SettingsError():
            return Invalid(f"settings cannot be read: {error}", SETTINGS)
        case _:
            return None


def _wrong(error_details: ErrorDetails) -> str:
    name = ".".join(map(str, error_details["loc"]))
    match error_details["type"]:
        case "unknown_variables":
            names = error_details.get("ctx", {})["names"].split(", ")
            return "; ".join(_unknown(name, nearest_variable(name)) for name in names)
        case "extra_forbidden":
            return _unknown(name, nearest(name))
        case _:
            return f"{name}: {error_details['msg']}"


def _unknown(name: str, meant: str | None) -> str:
    return f"{name}: there is no such setting" + (f" (is it {meant}?)" if meant else "")


def _of_mongodb(error: Exception) -> EdenError | None:
    match error:
        case ConnectionFailure():
            return EdenError(f"MongoDB does not answer: {_detail(error)}", MONGODB)
        case ConfigurationError():
            return EdenError(f"MongoDB's address cannot be used: {_detail(error)}", ADDRESS)
        case OperationFailure() if wrong_account(error):
            return EdenError("MongoDB does not accept the user name or the password", ACCOUNT)
        case OperationFailure() if refused_by_mongodb(error):
            return EdenError(
                f"MongoDB refuses: {_detail(error)}",
                "Give this user the rights that `eden doctor --rights` prints.",
            )
        case _:
            return None


def _of_kafka(error: Exception) -> EdenError | None:
    """Kafka's clients may not be installed; an error of theirs comes from a module that is loaded."""
    if isinstance(error, _loaded("aiokafka.errors", "KafkaConnectionError")):
        return EdenError(f"Kafka does not answer: {describe(error)}", KAFKA)
    if isinstance(
        error, _loaded("aiokafka.errors", "KafkaError") + _loaded("confluent_kafka", "KafkaException")
    ):
        return EdenError(f"Kafka failed: {describe(error)}", KAFKA)
    return None


def _loaded(module: str, name: str) -> tuple[type[Exception], ...]:
    found: Any = sys.modules.get(module)
    return () if found is None else (getattr(found, name),)


def nearest(name: str) -> str | None:
    """Return a setting or group with a similar name there, or the same name elsewhere; None: none."""
    place, dot, last = name.rpartition(".")
    places: dict[str, type[BaseModel]] = {"": Settings, **groups()}
    if place in places and (alike := get_close_matches(last, places[place].model_fields, 1)):
        return f"{place}{dot}{alike[0]}"
    return next((f"{group}.{last}" for group, kind in groups().items() if last in kind.model_fields), None)


def nearest_variable(name: str) -> str | None:
    """Return the variable with the most similar name; None: none is similar."""
    return next(iter(get_close_matches(name.upper(), variables() | {*OTHER_VARIABLES}, 1)), None)
