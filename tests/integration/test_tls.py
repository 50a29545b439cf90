"""Servers as real clusters have them, TLS and SCRAM with client certificates, reached by settings alone."""

import asyncio
import gc
import os
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trustme
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportUnknownVariableType]
from confluent_kafka.cimpl import NewTopic
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509 import load_pem_x509_certificate
from pydantic import SecretStr
from pymongo.errors import OperationFailure, ServerSelectionTimeoutError

from eden_memory.errors import EdenError
from eden_memory.kafka.connection import admin_config, client_kwargs
from eden_memory.local.local_kafka import KafkaSecurity, LocalKafka
from eden_memory.local.mongo import LocalMongo
from eden_memory.mongo.client import connect
from eden_memory.settings import KafkaSettings

pytestmark = pytest.mark.servers
Test = TypeVar("Test", bound=Callable[..., object])
USER, PASSWORD = "eden", "s3cret with = and ;"
KAFKA_PASSWORD = "s3cret-scram"


def a_failed_handshake(test: Test) -> Test:
    """Both drivers leave the socket of a failed handshake to the collector: it is called within the test."""
    ignored = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
    return ignored(pytest.mark.usefixtures("collected")(test))


@pytest.fixture
async def collected() -> AsyncGenerator[None]:
    yield
    await asyncio.sleep(0)
    gc.collect()


@dataclass(frozen=True)
class Files:
    """Certificates on disk: the authority's, the server's and the client's (chain, key, both in one)."""

    authority: Path
    server: Path
    server_key: Path
    server_both: Path
    client: Path
    client_key: Path
    client_both: Path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    server = authority.issue_cert("127.0.0.1", "localhost")
    client = authority.issue_cert("eden@example.net")
    names = {"server": server, "client": client}
    paths = {
        f"{name}{part}": folder / f"{name}{part}.pem" for name in names for part in ("", "_key", "_both")
    }
    for name, certificate in names.items():
        chain = b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
        key = pkcs8(certificate.private_key_pem.bytes())
        paths[name].write_bytes(chain)
        paths[f"{name}_key"].write_bytes(key)
        paths[f"{name}_both"].write_bytes(key + chain)
    return Files(authority=folder / "ca.pem", **paths)


def pkcs8(key: bytes) -> bytes:
    """The one form of a private key that Java reads from PEM."""
    return load_pem_private_key(key, None).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.fixture(scope="module")
def mongodb(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Generator[LocalMongo]:
    """A mongod that wants TLS, a client certificate and a SCRAM user."""
    folder = tmp_path_factory.mktemp("mongodb")
    key_file = folder / "members.key"
    key_file.write_text("a2V5IG9mIHRoZSBtZW1iZXJz")
    key_file.chmod(0o400)
    tls = {"mode": "requireTLS", "certificateKeyFile": str(files.server_both), "CAFile": str(files.authority)}
    server = LocalMongo(
        folder,
        options={"net": {"tls": tls}, "security": {"authorization": "enabled", "keyFile": str(key_file)}},
        client={
            "tls": True,
            "tlsCAFile": str(files.authority),
            "tlsCertificateKeyFile": str(files.client_both),
        },
    )
    server.start()
    with server.connect() as client:
        client.admin.command("createUser", USER, pwd=PASSWORD, roles=["root"])
    yield server
    server.kill()


def with_tls(server: LocalMongo, files: Files, **more: object) -> str:
    options = {
        "tls": "true",
        "tlsCAFile": files.authority,
        "tlsCertificateKeyFile": files.client_both,
        **more,
    }
    return "&".join([server.endpoint, *(f"{name}={value}" for name, value in options.items() if value)])


def with_user(server: LocalMongo, files: Files, password: str = PASSWORD, **more: object) -> str:
    quoted = password.replace(" ", "%20").replace("=", "%3D").replace(";", "%3B")
    address = with_tls(server, files, serverSelectionTimeoutMS=1500, **more)
    return address.replace("://", f"://{USER}:{quoted}@")


async def test_mongodb_with_tls_scram_and_client_certificate_is_reached_by_its_address(
    mongodb: LocalMongo, files: Files
) -> None:
    async with connect(with_user(mongodb, files)) as client:
        await client["kept"]["things"].insert_one({"_id": 1})
        assert await client["kept"]["things"].count_documents({}) == 1


async def test_mongodb_knows_a_user_by_the_certificate_alone(mongodb: LocalMongo, files: Files) -> None:
    subject = load_pem_x509_certificate(files.client.read_bytes()).subject.rfc4514_string()
    async with connect(with_user(mongodb, files)) as client:
        await client["$external"].command("createUser", subject, roles=[{"role": "read", "db": "kept"}])
    named = with_tls(mongodb, files, authMechanism="MONGODB-X509", authSource="$external")
    async with connect(named) as client:
        seen = await client.admin.command("connectionStatus")
        assert seen["authInfo"]["authenticatedUsers"] == [{"user": subject, "db": "$external"}]


def test_the_driver_receives_what_the_address_says_of_openid_connect() -> None:
    uri = "mongodb://a.example/?authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:k8s"
    credentials: Any = connect(uri).options.pool_options._credentials  # pyright: ignore
    assert credentials.mechanism == "MONGODB-OIDC"
    assert credentials.mechanism_properties.environment == "k8s"


@a_failed_handshake
async def test_mongodb_refuses_a_wrong_password(mongodb: LocalMongo, files: Files) -> None:
    async with connect(with_user(mongodb, files, "wrong")) as client:
        with pytest.raises(OperationFailure, match="Authentication failed"):
            await client["kept"]["things"].find_one()


@a_failed_handshake
async def test_mongodb_is_not_trusted_without_its_authority(mongodb: LocalMongo, files: Files) -> None:
    async with connect(with_user(mongodb, files, tlsCAFile=None)) as client:
        with pytest.raises(ServerSelectionTimeoutError, match="certificate verify failed"):
            await client["kept"]["things"].find_one()


@pytest.fixture(scope="module")
def kafka(files: Files, tmp_path_factory: pytest.TempPathFactory, jars_folder: Path) -> Generator[LocalKafka]:
    """A broker that wants SASL_SSL with SCRAM-SHA-512 and a client certificate."""
    jaas = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    security = KafkaSecurity(
        protocol="SASL_SSL",
        server={
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
                f'{jaas} username="{USER}" password="{KAFKA_PASSWORD}";'
            ),
            "listener.name.sasl_ssl.ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(files.server_both),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(files.authority),
        },
        client={
            key: str(value)
            for key, value in admin_config(kafka_settings(files), "").items()
            if key != "bootstrap.servers"
        },
        scram={USER: KAFKA_PASSWORD},
    )
    folder = tmp_path_factory.mktemp("kafka")
    server = LocalKafka(folder, jars_folder=jars_folder, security=security)
    server.start()
    yield server
    server.kill()


def kafka_settings(files: Files, password: str = KAFKA_PASSWORD) -> KafkaSettings:
    return KafkaSettings(  # pyright: ignore[reportCallIssue]
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username=USER,
        sasl_password=SecretStr(password),
        ssl_ca_file=files.authority,
        ssl_certificate_file=files.client,
        ssl_key_file=files.client_key,
    )


async def test_kafka_with_tls_scram_and_client_certificate_is_reached_by_its_address(
    kafka: LocalKafka, files: Files
) -> None:
    settings, bootstrap = kafka_settings(files), kafka.endpoint
    admin: Any = AdminClient(admin_config(settings, bootstrap))
    admin.create_topics([NewTopic("secured", 1, 1)])["secured"].result(20)
    producer: Any = AIOKafkaProducer(**client_kwargs(settings, bootstrap))
    async with producer:
        await producer.send_and_wait("secured", b"hello")
    options = client_kwargs(settings, bootstrap)
    consumer: Any = AIOKafkaConsumer("secured", auto_offset_reset="earliest", **options)
    async with consumer:
        assert (await consumer.getone()).value == b"hello"


@a_failed_handshake
@pytest.mark.parametrize("wrong", ["password", "authority", "no certificate"])
async def test_kafka_is_not_reached_with(wrong: str, kafka: LocalKafka, files: Files) -> None:
    changes: dict[str, dict[str, object]] = {
        "password": {"sasl_password": SecretStr("wrong")},
        "authority": {"ssl_ca_file": None},
        "no certificate": {"ssl_certificate_file": None, "ssl_key_file": None},
    }
    settings = kafka_settings(files).model_copy(update=changes[wrong])
    producer: Any = AIOKafkaProducer(**client_kwargs(settings, kafka.endpoint))
    try:
        with pytest.raises(KafkaError):
            await producer.start()
    finally:
        await producer.stop()


def test_missing_credentials_and_files_are_named(files: Files, tmp_path: Path) -> None:
    settings = kafka_settings(files)
    without = settings.model_copy(update={"sasl_password": None})
    with pytest.raises(EdenError, match="user or password is missing"):
        client_kwargs(without, "b:1")
    with pytest.raises(EdenError, match="no SASL mechanism is set"):
        admin_config(settings.model_copy(update={"sasl_mechanism": None}), "b:1")
    with pytest.raises(EdenError, match="TLS files cannot be used") as raised:
        client_kwargs(settings.model_copy(update={"ssl_ca_file": tmp_path / "none.pem"}), "b:1")
    assert "EDEN_KAFKA_SSL_CA_FILE" in raised.value.hint


def test_settings_come_from_the_environment(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    from eden_memory.settings import Settings

    monkeypatch.setitem(os.environ, "EDEN_KAFKA_SSL_CA_FILE", str(files.authority))
    monkeypatch.setitem(os.environ, "EDEN_KAFKA_SECURITY_PROTOCOL", "SSL")
    monkeypatch.setitem(os.environ, "EDEN_KAFKA_BOOTSTRAP", "b:9093")
    kafka = Settings().kafka
    assert client_kwargs(kafka, "b:9093")["ssl_context"].get_ca_certs()
    assert admin_config(kafka, "b:9093")["ssl.ca.location"] == str(files.authority)
