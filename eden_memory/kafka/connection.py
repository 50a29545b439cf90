"""Connection options for aiokafka (data) and confluent-kafka (administration), from the same settings."""

import asyncio
import ssl
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from aiokafka.errors import KafkaConnectionError, KafkaError
from aiokafka.helpers import create_ssl_context

from eden_memory.errors import EdenError, ServerAway, describe
from eden_memory.kafka import KafkaArguments
from eden_memory.kafka.broken_clients import close_consumer, starting
from eden_memory.kafka.header_names import read_all_names
from eden_memory.kafka.tokens import AWS, TokenProvider, librdkafka_callback, token_source
from eden_memory.settings import KafkaSettings
from eden_memory.tasks import patience, process_is_ours

CLIENT_ID, OAUTHBEARER = "eden-memory", "OAUTHBEARER"
START_SECONDS = 40.0
"""For the first answer of a broker, as aiokafka waits for any."""


async def start(consumer: Any) -> None:
    """Start a consumer; KafkaConnectionError if no broker answers in time.

    A consumer whose start fails or is interrupted leaves no connection.
    """
    try:
        with starting():
            async with asyncio.timeout(patience(START_SECONDS)):
                await consumer.start()
    except BaseException as error:
        await close_consumer(consumer)
        if isinstance(error, TimeoutError):
            raise KafkaConnectionError("no broker answers") from None
        raise


@contextmanager
def answering() -> Generator[None]:
    """Raise ServerAway where Kafka does not answer."""
    try:
        yield
    except (KafkaError, OSError) as error:
        raise ServerAway("Kafka does not answer", f"{type(error).__name__}: see `eden doctor`.") from error


def client_kwargs(settings: KafkaSettings, bootstrap: str) -> KafkaArguments:
    """Keyword arguments that every aiokafka client takes: addresses, TLS context, SASL.

    Reads the certificate files; an EdenError when one of them cannot be used.
    """
    if process_is_ours():
        read_all_names()
    options: KafkaArguments = {
        "bootstrap_servers": bootstrap,
        "client_id": CLIENT_ID,
        "security_protocol": settings.security_protocol,
    }
    if settings.security_protocol.endswith("SSL"):
        options["ssl_context"] = ssl_context(settings)
    if settings.security_protocol.startswith("SASL"):
        options |= _authentication(settings)
    return options


def admin_config(settings: KafkaSettings, bootstrap: str) -> dict[str, Any]:
    """The configuration of confluent-kafka's AdminClient (librdkafka's names)."""
    files = {
        "ssl.ca.location": settings.ssl_ca_file,
        "ssl.certificate.location": settings.ssl_certificate_file,
        "ssl.key.location": settings.ssl_key_file,
    }
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "client.id": CLIENT_ID,
        "security.protocol": settings.security_protocol,
        "socket.timeout.ms": "15000",
    }
    if settings.security_protocol.endswith("SSL"):
        config |= {name: str(path) for name, path in files.items() if path is not None}
        if settings.ssl_key_password is not None:
            config["ssl.key.password"] = settings.ssl_key_password.get_secret_value()
    if settings.security_protocol.startswith("SASL"):
        config |= _admin_authentication(settings)
    return config


def _authentication(settings: KafkaSettings) -> KafkaArguments:
    if _by_token(settings):
        provider = TokenProvider(token_source(settings))
        return {"sasl_mechanism": OAUTHBEARER, "sasl_oauth_token_provider": provider}
    username, password = _credentials(settings)
    return {
        "sasl_mechanism": _mechanism(settings),
        "sasl_plain_username": username,
        "sasl_plain_password": password,
    }


def _admin_authentication(settings: KafkaSettings) -> dict[str, Any]:
    if _by_token(settings):
        return {"sasl.mechanism": OAUTHBEARER, "oauth_cb": librdkafka_callback(token_source(settings))}
    username, password = _credentials(settings)
    return {"sasl.mechanism": _mechanism(settings), "sasl.username": username, "sasl.password": password}


def _by_token(settings: KafkaSettings) -> bool:
    return _mechanism(settings) in (OAUTHBEARER, AWS)


def ssl_context(settings: KafkaSettings) -> ssl.SSLContext:
    """A context that checks the broker's certificate against the CA file (or the system's) and shows ours."""
    certificate, key, password = (
        settings.ssl_certificate_file,
        settings.ssl_key_file,
        settings.ssl_key_password,
    )
    try:
        return create_ssl_context(
            cafile=str(settings.ssl_ca_file) if settings.ssl_ca_file else None,
            certfile=str(certificate) if certificate else None,
            keyfile=str(key) if key else None,
            password=password.get_secret_value() if password else None,
        )
    except OSError as error:
        raise EdenError(
            f"Kafka's TLS files cannot be used: {describe(error)}",
            "Check EDEN_KAFKA_SSL_CA_FILE, _SSL_CERTIFICATE_FILE, _SSL_KEY_FILE and _SSL_KEY_PASSWORD.",
        ) from error


def _mechanism(settings: KafkaSettings) -> str:
    if settings.sasl_mechanism is None:
        raise EdenError(
            f"Kafka's security protocol is {settings.security_protocol} but no SASL mechanism is set",
            "Set EDEN_KAFKA_SASL_MECHANISM to PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS_MSK_IAM.",
        )
    return settings.sasl_mechanism


def _credentials(settings: KafkaSettings) -> tuple[str, str]:
    if settings.sasl_username is None or settings.sasl_password is None:
        raise EdenError(
            f"Kafka's security protocol is {settings.security_protocol} but user or password is missing",
            "Set EDEN_KAFKA_SASL_USERNAME and EDEN_KAFKA_SASL_PASSWORD.",
        )
    return settings.sasl_username, settings.sasl_password.get_secret_value()
