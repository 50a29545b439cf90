"""Webhooks: the signature of Standard Webhooks, which addresses are told, and when an attempt is repeated."""

import socket
from base64 import b64decode
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest

from eden_memory.errors import Invalid
from eden_memory.schemas.documents import Webhook
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import FactChanged
from eden_memory.stages.stage import Delivery
from eden_memory.webhooks.receivers import PrivateAddress, Receivers, checked_url, is_public
from eden_memory.webhooks.webhook_rules import notices_of, pause_after, secret_of, signed_headers


def test_the_signature_is_that_of_the_specifications_libraries() -> None:
    """The values are those of the README of the reference libraries."""
    key = b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = signed_headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}', key)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_each_webhook_has_a_secret_of_its_own_of_32_bytes() -> None:
    made = {secret_of(name, key) for name in ("a", "b") for key in (b"1" * 32, b"2" * 32)}
    assert len(made) == 4
    assert all(one.startswith("whsec_") and len(b64decode(one[6:])) == 32 for one in made)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
        "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1",
        "64:ff9b:1::7f00:1", "fec0::1", "::127.0.0.1", "::ffff:0:127.0.0.1",
        "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "2002:7f00:1::", "2001:0:7f00:1::",
    ],
)  # fmt: skip
def test_addresses_of_this_network_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "64:ff9b::808:808"]
)
def test_addresses_of_the_internet_are(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "url",
    ["http://example.com", "ftp://example.com", "https://", "example.com", "https://a:b@example.com", "https://[::1",
     "https://example.com/#x", "https://example..com/", "https://" + "x" * 64 + ".com", "https://example.com:99999",
     "https://example.com/" + "x" * 2_048],
)  # fmt: skip
def test_only_https_urls_of_a_host_are_taken(url: str) -> None:
    with pytest.raises(Invalid):
        checked_url(url, allow_private=False)


async def test_a_name_that_leads_to_a_private_address_among_others_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = ["93.184.215.14", "127.0.0.1"]

    def look_up(*_: Any, **__: Any) -> list[Any]:
        return [(0, 0, 0, "", (one, 443)) for one in found]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    reaching = Receivers()
    with pytest.raises(PrivateAddress):
        await reaching.addresses(httpx2.URL("https://example.com"), allow_private=False)
    await reaching.close()


async def test_what_is_connected_to_is_the_number_that_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is told to TLS and in `Host` alone: nobody looks it up a second time."""
    asked: list[httpx2.Request] = []

    async def answer(_: Any, request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(302, headers={"location": "http://127.0.0.1/"})

    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", answer)
    reaching = Receivers()
    url = httpx2.URL("https://example.com:8443/told?a=1")
    assert await reaching.post(url, ["93.184.215.14"], {}, b"{}") == "status 302"
    await reaching.close()
    (request,) = asked
    assert str(request.url) == "https://93.184.215.14:8443/told?a=1"
    assert request.headers["host"] == "example.com:8443"
    assert request.extensions["sni_hostname"] == "example.com"


def test_each_forgotten_version_of_a_fact_is_told_by_an_id_of_its_own() -> None:
    """What one tells may be that the fact has changed; the one that ends it must not be taken for a repeat."""
    now = datetime(2026, 1, 31, 12, tzinfo=UTC)
    webhook = Webhook(id="w", url="https://example.com/", on=("facts",), created_at=now, created_by="a test")  # pyright: ignore[reportCallIssue]

    def ids(version: int) -> list[str]:
        envelope = Envelope(
            "e", FactChanged.NAME, 1, "eden", now, "f", "user:s.a:s.ada", scope="user:s.a:s.ada"
        )
        delivery = Delivery(envelope, None, "memory.facts", f"f@{version}")
        return [notice.id for notice in notices_of(delivery, [webhook], now)]

    assert len(ids(1)) == 1
    assert ids(1) == ids(1)
    assert ids(1) != ids(2)


def test_pauses_grow_to_three_hours() -> None:
    pauses = [pause_after(attempts).total_seconds() for attempts in range(1, 40)]
    assert pauses == sorted(pauses)
    assert pauses[0] == 5
    assert pauses[-1] == 10_800
