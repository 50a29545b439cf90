"""Kafka by SASL OAUTHBEARER: a real broker, and a token endpoint that issues unsecured JSON Web Tokens."""

import json
import threading
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportUnknownVariableType]
from confluent_kafka.cimpl import NewTopic
from pydantic import SecretStr

from eden_memory.errors import EdenError
from eden_memory.kafka.connection import admin_config, client_kwargs
from eden_memory.kafka.tokens import CachedTokens, Token
from eden_memory.local.local_kafka import KafkaSecurity, LocalKafka
from eden_memory.settings import KafkaSettings

pytestmark = pytest.mark.servers
CLIENT, SECRET = "eden", "s3cret"
LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


def token() -> str:
    """An unsecured JSON Web Token, as brokers take them in development."""
    now = time.time()
    parts: tuple[dict[str, Any], ...] = {"alg": "none"}, {"sub": CLIENT, "iat": now, "exp": now + 600}
    encoded = (urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return ".".join((*encoded, ""))


class TokenEndpoint(BaseHTTPRequestHandler):
    """OAuth 2.0's client credentials grant."""

    asked: list[dict[str, list[str]]] = []

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        account = "Basic " + b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        known = self.headers["Authorization"] == account and form["grant_type"] == ["client_credentials"]
        self.asked.append(form)
        self.send_response(200 if known else 401)
        self.end_headers()
        self.wfile.write(json.dumps({"access_token": token(), "expires_in": 600} if known else {}).encode())

    def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Nothing."""


@pytest.fixture(scope="module")
def endpoint() -> Generator[str]:
    server = HTTPServer(("127.0.0.1", 0), TokenEndpoint)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/token"
    server.shutdown()
    thread.join()
    server.server_close()


def by_endpoint(url: str, secret: str = SECRET) -> KafkaSettings:
    return KafkaSettings(  # pyright: ignore[reportCallIssue]
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_username=CLIENT,
        sasl_password=SecretStr(secret),
        sasl_token_url=url,
        sasl_token_scope="kafka",
    )


def by_file(file: Path) -> KafkaSettings:
    return KafkaSettings(  # pyright: ignore[reportCallIssue]
        security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", sasl_token_file=file
    )


@pytest.fixture(scope="module")
def kafka(
    tmp_path_factory: pytest.TempPathFactory, jars_folder: Path, endpoint: str
) -> Generator[LocalKafka]:
    """A broker that lets nobody in without a token."""
    client = admin_config(by_endpoint(endpoint), "")
    del client["bootstrap.servers"]
    security = KafkaSecurity(
        protocol="SASL_PLAINTEXT",
        server={
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
                f'{LOGIN} unsecuredLoginStringClaim_sub="{CLIENT}";'
            ),
        },
        client=client,
    )
    server = LocalKafka(tmp_path_factory.mktemp("kafka"), jars_folder=jars_folder, security=security)
    server.start()
    yield server
    server.kill()


async def said(settings: KafkaSettings, bootstrap: str, topic: str) -> bytes:
    """Make a topic, write to it and read from it, with each of our clients."""
    admin: Any = AdminClient(admin_config(settings, bootstrap))
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
    options = client_kwargs(settings, bootstrap)
    producer: Any = AIOKafkaProducer(**options)
    async with producer:
        await producer.send_and_wait(topic, b"hello")
    consumer: Any = AIOKafkaConsumer(topic, auto_offset_reset="earliest", **options)
    async with consumer:
        return (await consumer.getone()).value


@pytest.mark.slow
async def test_kafka_is_reached_with_tokens_of_an_endpoint(kafka: LocalKafka, endpoint: str) -> None:
    assert await said(by_endpoint(endpoint), kafka.endpoint, "by-endpoint") == b"hello"
    assert TokenEndpoint.asked[-1]["scope"] == ["kafka"]


async def test_kafka_is_reached_with_the_token_of_a_file(kafka: LocalKafka, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(token() + "\n")
    assert await said(by_file(file), kafka.endpoint, "by-file") == b"hello"


async def test_a_secret_that_the_endpoint_refuses_reaches_nothing_and_stands_in_no_error(
    kafka: LocalKafka, endpoint: str
) -> None:
    producer: Any = AIOKafkaProducer(**client_kwargs(by_endpoint(endpoint, "wr0ng"), kafka.endpoint))
    try:
        with pytest.raises(KafkaError) as raised:
            await producer.start()
    finally:
        await producer.stop()
    assert "wr0ng" not in str(raised.value)


def test_tokens_without_a_source_and_without_the_extra_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = KafkaSettings(security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER")  # pyright: ignore[reportCallIssue]
    with pytest.raises(EdenError, match="nothing brings its tokens"):
        client_kwargs(bare, "b:1")
    signed = bare.model_copy(update={"sasl_mechanism": "AWS_MSK_IAM"})
    with pytest.raises(EdenError) as raised:
        admin_config(signed, "b:1")["oauth_cb"]("")
    assert raised.value.hint == "pip install 'eden-memory[aws]'"


def test_a_token_is_used_for_most_of_its_lifetime() -> None:
    now = [1_000.0]
    issued: list[float] = []

    def issue() -> Token:
        issued.append(now[0])
        return Token(f"t{len(issued)}", now[0] + 100)

    tokens = CachedTokens(issue, lambda: now[0], lambda: now[0])
    assert [tokens().value, tokens().value] == ["t1", "t1"]
    now[0] += 81
    assert tokens().value == "t2"
    assert issued == [1_000.0, 1_081.0]
