"""What goes wrong before or under a command, for people: settings that are not valid, servers that do not answer."""

from tomllib import TOMLDecodeError

from aiokafka.errors import KafkaConnectionError
from confluent_kafka import KafkaException
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import SettingsError
from pymongo.errors import ConnectionFailure, OperationFailure

from eden_memory.api.errors import Invalid
from eden_memory.cli.setting_names import nearest
from eden_memory.domain.errors import EdenError
from eden_memory.runtime.stages.failures import refused

SETTINGS = "Settings come from EDEN_… and eden.toml: docs/reference/settings.md."
MONGODB = "Check that it runs (`eden status`), and EDEN_MONGODB_URI."
KAFKA = "Check that it runs (`eden status`), and EDEN_KAFKA_BOOTSTRAP."


def told(error: Exception) -> EdenError | None:
    """The same for people; None: it is a fault of the program's own. Values are left out: they may be secret."""
    return _of_settings(error) or _of_servers(error)


def _of_settings(error: Exception) -> EdenError | None:
    match error:
        case ValidationError() if error.title == "Settings":
            wrong = "; ".join(map(_wrong, error.errors(include_url=False, include_input=False)))
            return Invalid(f"settings are not valid: {wrong}", SETTINGS)
        case SettingsError() | TOMLDecodeError():
            return Invalid(f"settings cannot be read: {error}", SETTINGS)
        case _:
            return None


def _wrong(one: ErrorDetails) -> str:
    name = ".".join(map(str, one["loc"]))
    if one["type"] != "extra_forbidden":
        return f"{name}: {one['msg']}"
    meant = nearest(name)
    return f"{name}: there is no such setting" + (f" (is it {meant}?)" if meant else "")


def _of_servers(error: Exception) -> EdenError | None:
    match error:
        case ConnectionFailure():
            return EdenError(f"MongoDB does not answer: {str(error).partition(' (')[0]}", MONGODB)
        case OperationFailure() if refused(error):
            return EdenError(
                f"MongoDB refuses: {str(error).partition(', full error')[0]}",
                "`eden doctor` prints the rights that are needed.",
            )
        case KafkaConnectionError():
            return EdenError(f"Kafka does not answer: {error}", KAFKA)
        case KafkaException():
            return EdenError(f"Kafka could not do it: {error}", KAFKA)
        case _:
            return None
