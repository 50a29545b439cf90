"""Errors as text: what they were about, a document, an input or a key, stands nowhere in it."""

import ast
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import orjson
import pytest
import structlog
from aiokafka.errors import KafkaConnectionError, TopicAuthorizationFailedError
from bson import encode
from confluent_kafka import KafkaError, KafkaException
from pydantic import BaseModel, ConfigDict
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    DuplicateKeyError,
    NotPrimaryError,
    OperationFailure,
    ServerSelectionTimeoutError,
    WriteError,
)

from eden_memory import logs
from eden_memory.cli import structured_logs
from eden_memory.errors import EdenError, describe, describe_with_trace
from eden_memory.models.openai import OpenAIWire
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import REGISTRY
from eden_memory.stages.failure_decisions import Failure
from eden_memory.stages.patience import ServerRefusals

SECRET = "Rumpelstiltskin"
ROOT = Path(__file__).parents[2]
DUPLICATE: dict[str, Any] = {
    "index": 0,
    "code": 11000,
    "errmsg": f'E11000 duplicate key error collection: a.b index: x_1 dup key: {{ x: "{SECRET}" }}',
    "keyPattern": {"x": 1},
    "keyValue": {"x": SECRET},
    "op": {"_id": 1, "x": SECRET},
}
INVALID: dict[str, Any] = {
    "index": 0,
    "code": 121,
    "errmsg": "Document failed validation",
    "errInfo": {
        "failingDocumentId": SECRET,
        "details": {
            "operatorName": "$jsonSchema",
            "schemaRulesNotSatisfied": [
                {
                    "operatorName": "properties",
                    "propertiesNotSatisfied": [
                        {"propertyName": "text", "details": [{"consideredValue": SECRET}]}
                    ],
                }
            ],
        },
    },
}


class Closed(BaseModel):
    """Refuses what it does not know."""

    model_config = ConfigDict(extra="forbid")

    number: int


class TextlessError(EdenError):
    """Its text is an error."""

    __module__ = "eden_memory.errors"

    def __str__(self) -> str:
        raise ValueError(SECRET)


def closed(fields: dict[str, Any]) -> Callable[[], object]:
    """A value for it."""
    return lambda: Closed.model_validate(fields)


def raising(error: Exception) -> Callable[[], object]:
    """Raises this."""

    def raises() -> None:
        raise error

    return raises


def refused_by_provider() -> None:
    """A provider that quotes the prompt wherever it can."""
    wire = OpenAIWire.__new__(OpenAIWire)
    wire.name, wire._refused_key = "x", "X"  # pyright: ignore[reportPrivateUsage]
    body = {"message": f"bad: {SECRET}", "code": f"bad {SECRET}", "param": f"it says {SECRET}", "type": None}
    response = httpx2.Response(400, request=httpx2.Request("POST", "http://x"))
    error = openai.BadRequestError(f"Error: {body}", response=response, body=body)
    raise wire._failure(error, "m")  # pyright: ignore[reportPrivateUsage]


def chained() -> None:
    """An error of our own over one that holds content."""
    try:
        raise DuplicateKeyError(DUPLICATE["errmsg"], 11000, DUPLICATE)
    except DuplicateKeyError as error:
        raise EdenError("it could not be stored") from error


def read(**headers: bytes) -> None:
    """An envelope with these attributes among its own."""
    known = {"ce_type": b"eden.Closed.v1", "ce_specversion": b"1.0", "ce_id": b"1", "ce_source": b"s"}
    Envelope.of_headers(list({**known, "ce_time": b"2026-01-02T03:04:05Z", **headers}.items()))


ERRORS: dict[str, tuple[Callable[[], object], str]] = {
    "duplicate key": (
        raising(DuplicateKeyError(DUPLICATE["errmsg"], 11000, DUPLICATE)),
        "DuplicateKeyError: code 11000 on x",
    ),
    "validator": (
        raising(WriteError("Document failed validation", 121, INVALID)),
        "WriteError: code 121 in text",
    ),
    "bulk write": (
        raising(BulkWriteError({"writeErrors": [INVALID, DUPLICATE], "writeConcernErrors": []})),
        "BulkWriteError: code 121 in text and 1 more",
    ),
    "write concern": (
        raising(
            BulkWriteError(
                {"writeErrors": [], "writeConcernErrors": [{"code": 64, "codeName": "W", "errmsg": SECRET}]}
            )
        ),
        "BulkWriteError: code 64 W",
    ),
    "refusal": (
        raising(
            OperationFailure(
                f'not authorized on eden to execute command {{ find: "x", filter: {{ x: "{SECRET}" }} }}',
                13,
                {"code": 13, "codeName": "Unauthorized"},
            )
        ),
        "OperationFailure: not authorized on eden to execute find",
    ),
    "not primary": (
        raising(NotPrimaryError("not primary", {"code": 10107, "errmsg": SECRET})),
        "NotPrimaryError: code 10107",
    ),
    "lost": (
        raising(AutoReconnect("db:27017: connection closed")),
        "AutoReconnect: db:27017: connection closed",
    ),
    "away": (
        raising(
            ServerSelectionTimeoutError(f"db:27017: [Errno 111] refused (configured {SECRET}), Timeout: 1s")
        ),
        "ServerSelectionTimeoutError: db:27017: [Errno 111] refused",
    ),
    "reset": (raising(ConnectionResetError("Connection lost")), "ConnectionResetError: Connection lost"),
    "BSON": (lambda: encode({"text": SECRET, "x": object()}), "InvalidDocument"),
    "pydantic": (closed({"number": SECRET}), "ValidationError: number: int_parsing"),
    "pydantic, extra": (closed({"number": 1, SECRET: 1}), "ValidationError: value: extra_forbidden"),
    "pydantic, written": (
        lambda: Closed.model_construct(number=f"{SECRET} \ud83d").model_dump_json(warnings=False),
        "PydanticSerializationError: at ",
    ),
    "textless": (raising(TextlessError(SECRET)), "TextlessError: at "),
    "json": (lambda: json.loads(f'{{"text": "{SECRET}"'), "JSONDecodeError: line 1, column"),
    "orjson": (lambda: orjson.loads(f'{{"text": "{SECRET}"'), "JSONDecodeError: line 1, column"),
    "key": (lambda: dict[str, int]()[SECRET], "KeyError: at "),
    "number": (lambda: int(SECRET), "ValueError: at "),
    "file": (lambda: open(f"/nowhere/{SECRET}").close(), "FileNotFoundError: No such file or directory"),
    "provider": (refused_by_provider, "InvalidRequest: 400 no code"),
    "provider's SDK": (
        raising(
            openai.BadRequestError(
                SECRET, response=httpx2.Response(400, request=httpx2.Request("POST", "http://x")), body=None
            )
        ),
        "BadRequestError: status 400",
    ),
    "type header": (lambda: read(ce_type=SECRET.encode()), "EnvelopeError: "),
    "time header": (lambda: read(ce_time=SECRET.encode()), "EnvelopeError: "),
    "version header": (lambda: read(ce_specversion=SECRET.encode()), "EnvelopeError: "),
    "id header": (lambda: read(ce_id=SECRET.encode() + b"\xff"), "EnvelopeError: "),
    "schema": (
        lambda: REGISTRY.decode("SessionEnded", 1, json.dumps({"version": SECRET}).encode()),
        "SchemaViolation: ",
    ),
    "type": (lambda: REGISTRY.decode(SECRET, 1, b"{}"), "SchemaViolation: "),
    "aiokafka": (
        raising(TopicAuthorizationFailedError(SECRET)),
        "TopicAuthorizationFailedError: code 29",
    ),
    "aiokafka, lost": (
        raising(KafkaConnectionError("Connection at k:9092 closed")),
        "KafkaConnectionError: Connection at k:9092 closed",
    ),
    "librdkafka": (
        raising(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, SECRET))),
        "KafkaException: UNKNOWN_TOPIC_OR_PART, Broker: Unknown topic or partition",
    ),
    "chain": (chained, "EdenError: it could not be stored"),
    "group": (raising(ExceptionGroup(SECRET, [ValueError(SECRET)])), "ExceptionGroup: at "),
}


@pytest.fixture(params=ERRORS)
def raised(request: pytest.FixtureRequest) -> tuple[Exception, str]:
    """Each of them, raised, and how it is described."""
    call, said = ERRORS[request.param]
    try:
        call()
    except Exception as error:  # noqa: BLE001 - whatever it is
        return error, said
    raise AssertionError("nothing was raised")


def test_an_error_is_described_by_its_class_code_and_fields(raised: tuple[Exception, str]) -> None:
    error, said = raised
    assert describe(error).startswith(said)
    assert SECRET not in describe(error)


def test_a_stack_trace_shows_the_calls_and_no_content(raised: tuple[Exception, str]) -> None:
    error, _ = raised
    trace = describe_with_trace(error)
    assert SECRET not in trace
    assert "Traceback (most recent call last)" in trace
    assert describe(error) in trace


def test_what_dead_letters_outcomes_and_readyz_are_given_is_described(raised: tuple[Exception, str]) -> None:
    error, said = raised
    refusals = ServerRefusals()
    refusals.met(object(), error)
    assert refusals.reason is not None
    assert refusals.reason.startswith(said)
    assert Failure.of(error).reason.startswith(said)
    assert SECRET not in refusals.reason + Failure.of(error).reason


@pytest.mark.parametrize("terminal", [True, False])
def test_logs_show_no_content(
    raised: tuple[Exception, str],
    terminal: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error, _ = raised
    before, handlers = structlog.get_config(), logging.root.handlers[:]
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    logging.root.handlers.clear()
    try:
        structured_logs.configure()
        logging.root.setLevel(logging.INFO)
        structlog.get_logger().error("failed", exc_info=error, reason=error)
        logging.getLogger("a.library").error("failed on %s", error, exc_info=error)
        try:
            raise error
        except Exception:
            structlog.get_logger().exception("failed")
            logging.getLogger("a.library").exception("failed")
    finally:
        structlog.configure(**before)
        logging.root.handlers[:] = handlers
    shown = capsys.readouterr().err
    assert SECRET not in shown
    assert shown.count(type(error).__name__) >= 4


def test_an_application_that_imports_the_package_logs_no_content(
    raised: tuple[Exception, str], caplog: pytest.LogCaptureFixture
) -> None:
    error, _ = raised
    structlog.reset_defaults()
    log = logs.LibraryLogger("eden.test")
    log.error("failed", exc_info=error, reason=error)
    try:
        raise error
    except Exception:
        log.exception("failed")
    assert SECRET not in caplog.text
    assert caplog.text.count(type(error).__name__) >= 2


def modules() -> Iterator[tuple[Path, list[ast.AST]]]:
    """What the program consists of, and all nodes of each."""
    for folder in ("eden_memory", "processors", "schemas"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT), list(ast.walk(ast.parse(path.read_text())))


def caught(handler: ast.ExceptHandler) -> set[str]:
    """Names of the classes that a handler catches."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {ast.unparse(kind).split(".")[-1] for kind in kinds if kind is not None}


def as_text(body: list[ast.stmt], name: str | None) -> Iterator[int]:
    """The lines where an error becomes text by itself."""
    for node in ast.walk(ast.Module(body, [])):
        shown = None
        if isinstance(node, ast.FormattedValue):
            shown = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            shown = node.args[0] if node.func.id in ("str", "repr") else None
        if isinstance(shown, ast.Name) and shown.id == name:
            yield shown.lineno


REVIEWED = {
    "eden_memory/cli/error_messages.py",
    "eden_memory/demo/conversation.py",
    "eden_memory/mongo/client.py",
    "eden_memory/assembly/mongo_setup.py",
    "eden_memory/kafka/topics.py",
}
"""What is wrong in a file of the operator's own or in an index, and of an address the sentence up to its value."""


def test_no_error_of_another_library_becomes_text_but_by_describe() -> None:
    read = list(modules())
    own = {node.name for _, nodes in read for node in nodes if isinstance(node, ast.ClassDef)}
    found = [
        f"{path}:{line}"
        for path, nodes in read
        for handler in nodes
        if isinstance(handler, ast.ExceptHandler) and not caught(handler) <= own
        for line in as_text(handler.body, handler.name)
        if str(path) not in REVIEWED
    ]
    assert found == []
