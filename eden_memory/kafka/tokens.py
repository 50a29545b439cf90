"""Tokens for SASL OAUTHBEARER: out of a file, from an OpenID Connect endpoint, or signed for Amazon MSK (AWS IAM)."""

import asyncio
import json
import math
import os
import threading
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError

from eden_memory.errors import EdenError, needs_extra
from eden_memory.settings import KafkaSettings

AWS = "AWS_MSK_IAM"
SECONDS = 10.0
"""Time limit of a request to the token endpoint."""
UNKNOWN_LIFETIME = 300.0
"""Seconds after which a token without an expiry is read again."""
USED = 0.8
"""The share of a token's lifetime after which the next one is requested."""
NO_SOURCE = (
    "Set EDEN_KAFKA_SASL_TOKEN_FILE, or EDEN_KAFKA_SASL_TOKEN_URL, EDEN_KAFKA_SASL_USERNAME and "
    "EDEN_KAFKA_SASL_PASSWORD."
)


class Token(NamedTuple):
    """A token, and when it expires, in seconds since 1970."""

    value: str
    expires_at: float


TokenSource = Callable[[], Token]


class TokenProvider(AbstractTokenProvider):
    """A provider that aiokafka asks for a token with each connection."""

    def __init__(self, source: TokenSource) -> None:
        self._source = source

    async def token(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride] - it has no annotations
        """Return a valid token; KafkaError if there is none now."""
        return (await asyncio.to_thread(self._source)).value


def librdkafka_callback(source: TokenSource) -> Callable[[str], tuple[str, float]]:
    """Return what librdkafka calls, with its own configuration, for a token and its expiry."""

    def asked(_configuration: str) -> tuple[str, float]:
        token = source()
        return token.value, token.expires_at

    return asked


def token_source(settings: KafkaSettings) -> TokenSource:
    """Return the source of tokens that the settings name; EdenError if they name none."""
    if settings.sasl_mechanism == AWS:
        return CachedTokens(_signed_for_aws)
    if settings.sasl_token_file is not None:
        file = settings.sasl_token_file
        return lambda: _dated(file.read_text().strip())
    if settings.sasl_token_url is None or not settings.sasl_username or settings.sasl_password is None:
        raise EdenError("Kafka's SASL mechanism is OAUTHBEARER but nothing brings its tokens", NO_SOURCE)
    return CachedTokens(lambda: _from_endpoint(settings))


class CachedTokens:
    """A source that asks for the next token when most of the lifetime of the last one has passed."""

    def __init__(
        self,
        source: TokenSource,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`wall` reads a new token's time of expiry, `clock` the time that passes from then on."""
        self._source, self._clock, self._wall = source, clock, wall
        self._lock = threading.Lock()
        self._token, self._until = Token("", 0.0), -math.inf

    def __call__(self) -> Token:
        """Return a token that is still valid."""
        with self._lock:
            now = self._clock()
            if now >= self._until:
                self._token = self._source()
                self._until = now + (self._token.expires_at - self._wall()) * USED
            return self._token


def _from_endpoint(settings: KafkaSettings) -> Token:
    """OAuth 2.0's client credentials grant (RFC 6749, section 4.4)."""
    import httpx2  # noqa: PLC0415 - few clusters ask for tokens

    assert settings.sasl_token_url is not None
    assert settings.sasl_password is not None
    asked = {"grant_type": "client_credentials"}
    if settings.sasl_token_scope:
        asked["scope"] = settings.sasl_token_scope
    account = settings.sasl_username or "", settings.sasl_password.get_secret_value()
    try:
        answer = httpx2.post(settings.sasl_token_url, data=asked, auth=account, timeout=SECONDS)
    except httpx2.HTTPError as error:
        raise KafkaConnectionError(f"the token endpoint does not answer: {type(error).__name__}") from None
    if answer.status_code >= httpx2.codes.INTERNAL_SERVER_ERROR:
        raise KafkaConnectionError(f"the token endpoint failed with status {answer.status_code}")
    if not answer.is_success:
        raise AuthenticationFailedError(f"the token endpoint refused with status {answer.status_code}")
    found: dict[str, Any] = answer.json()
    lifetime = float(found.get("expires_in") or UNKNOWN_LIFETIME)
    return Token(str(found["access_token"]), time.time() + lifetime)


def _signed_for_aws() -> Token:
    with needs_extra("Kafka's SASL mechanism AWS_MSK_IAM", "aws"):
        signers: Any = import_module("aws_msk_iam_sasl_signer")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise EdenError("the AWS region of Kafka is not known", "Set AWS_REGION.")
    token, expires_at_ms = signers.MSKAuthTokenProvider.generate_auth_token(region)
    return Token(token, expires_at_ms / 1000)


def _dated(token: str) -> Token:
    """With the time of its expiry, if it is a JSON Web Token that says so."""
    try:
        claims = token.split(".")[1]
        expires_at = float(json.loads(urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"])
    except (LookupError, ValueError):
        expires_at = time.time() + UNKNOWN_LIFETIME
    return Token(token, expires_at)
