"""Both local servers together: up, down, status, endpoints; each only where the settings name no other.

The extra `local` may be absent (it is from images): what needs it is imported when it is used.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from eden_memory.errors import EdenError, needs
from eden_memory.settings import Settings

if TYPE_CHECKING:
    from eden_memory.local.local_kafka import LocalKafka
    from eden_memory.local.mongo import LocalMongo
    from eden_memory.local.server import ServerInFolder


OTHERWISE = ", or set EDEN_MONGODB_URI and EDEN_KAFKA_BOOTSTRAP"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """MongoDB's connection string and Kafka's bootstrap servers."""

    mongodb: str
    kafka: str


class ServerReport(BaseModel):
    """The state of one server, for people."""

    model_config = ConfigDict(frozen=True)

    name: str
    origin: Literal["local", "settings"]
    running: bool | None
    """None for a server that the settings name: `eden doctor` asks it."""
    endpoint: str | None = None
    pid: int | None = None
    started_at: float | None = None
    version: str | None = None
    log: str | None = None
    already: bool = False
    notes: Sequence[str] = ()


def local_mongo(settings: Settings) -> "LocalMongo":
    """Return the settings' local MongoDB, running or not."""
    needs("local", "a local MongoDB (EDEN_MONGODB_URI is not set)", OTHERWISE)
    from eden_memory.local.mongo import LocalMongo  # noqa: PLC0415

    return LocalMongo(settings.local.folder / "mongodb")


def local_kafka(settings: Settings) -> "LocalKafka":
    """Return the settings' local Kafka, running or not."""
    needs("local", "a local Kafka (EDEN_KAFKA_BOOTSTRAP is not set)", OTHERWISE)
    from eden_memory.local.local_kafka import LocalKafka  # noqa: PLC0415

    return LocalKafka(settings.local.folder / "kafka", jars_folder=settings.local.folder / "jars")


def endpoints(settings: Settings) -> Endpoints:
    """Return the servers of the settings, else the local ones; EdenError if those are down."""
    return Endpoints(
        mongodb=mongodb_endpoint(settings),
        kafka=settings.kafka.bootstrap or _running(local_kafka(settings), "EDEN_KAFKA_BOOTSTRAP"),
    )


def mongodb_endpoint(settings: Settings) -> str:
    """Return MongoDB's connection string like `endpoints`, without Kafka."""
    uri = settings.mongodb.uri
    return uri.get_secret_value() if uri else _running(local_mongo(settings), "EDEN_MONGODB_URI")


def up(settings: Settings, *, stays: bool = True) -> list[ServerReport]:
    """Start the servers that the settings do not name; EdenError names every server that failed.

    What does not stay ends with this process.
    """
    external = [report for report in _named_by_settings(settings) if report]
    servers = _to_run_here(settings)
    with ThreadPoolExecutor(max_workers=2) as pool:
        starting = [pool.submit(_start, server, stays=stays) for server in servers]
    failures = [error for future in starting if (error := future.exception())]
    if failures:
        raise _together(failures)
    return [*external, *(future.result() for future in starting)]


def down(settings: Settings) -> list[str]:
    """Stop the running local servers, whatever the settings name, and return their names."""
    servers = [local_mongo(settings), local_kafka(settings)]
    with ThreadPoolExecutor(max_workers=2) as pool:
        stopped = list(pool.map(_stop, servers))
    return [server.name for server, was_running in zip(servers, stopped, strict=True) if was_running]


def status(settings: Settings) -> list[ServerReport]:
    """Report which servers run and where; changes nothing."""
    external = [report for report in _named_by_settings(settings) if report]
    return [*external, *(_report(server) for server in _to_run_here(settings))]


def _to_run_here(settings: Settings) -> "list[ServerInFolder]":
    candidates: list[tuple[object, Callable[[Settings], ServerInFolder]]] = [
        (settings.mongodb.uri, local_mongo),
        (settings.kafka.bootstrap, local_kafka),
    ]
    return [make(settings) for named, make in candidates if not named]


def _named_by_settings(settings: Settings) -> list[ServerReport | None]:
    report = partial(ServerReport, origin="settings", running=None)
    uri, bootstrap = settings.mongodb.uri, settings.kafka.bootstrap
    return [
        report(name="MongoDB", endpoint=without_password(uri.get_secret_value())) if uri else None,
        report(name="Kafka", endpoint=bootstrap) if bootstrap else None,
    ]


def without_password(uri: str) -> str:
    """Return a connection string without user and password, and without options: some of them are secrets."""
    scheme, separator, rest = uri.partition("?")[0].partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{separator}{authority.rpartition('@')[2]}{slash}{path}"


def _stop(server: "ServerInFolder") -> bool:
    return server.stop()


def _start(server: "ServerInFolder", *, stays: bool) -> ServerReport:
    started = server.start(stays=stays)
    return _report(server).model_copy(update={"already": started.already, "notes": tuple(started.notes)})


def _report(server: "ServerInFolder") -> ServerReport:
    pid, state = server.pid, server.state
    return ServerReport(
        name=server.name,
        origin="local",
        running=pid is not None,
        endpoint=server.endpoint if state.ports else None,
        pid=pid,
        started_at=state.started_at if pid else None,
        version=state.version or None,
        log=str(server.log),
    )


def _running(server: "ServerInFolder", variable: str) -> str:
    if not server.running:
        raise EdenError(
            f"{server.name} does not run here ({server.folder})",
            f"Start it with `eden up`, or set {variable}.",
        )
    return server.endpoint


def _together(failures: Sequence[BaseException]) -> BaseException:
    known = [failure for failure in failures if isinstance(failure, EdenError)]
    if len(known) < len(failures):
        return next(failure for failure in failures if not isinstance(failure, EdenError))
    hints = dict.fromkeys(failure.hint for failure in known if failure.hint)
    return EdenError("\n".join(failure.what for failure in known), "\n".join(hints))
