"""Secrets leave texts before Kafka has them; ordinary chat comes through letter by letter."""

# ruff: noqa: RUF001 - other scripts have letters and signs like ours

import json
import re
from base64 import urlsafe_b64encode
from itertools import product
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eden_memory import redaction
from eden_memory.files import record_import
from eden_memory.mongo.document_fields import cut, text_of
from eden_memory.mongo.ids import encode_id
from eden_memory.redaction import SEAM, Redactor, has_check_digit, may_hold_a_secret
from eden_memory.schemas.events import FactCommanded, decode
from eden_memory.schemas.events.chat import rules_of, settings_of
from eden_memory.schemas.scopes import Scope
from eden_memory.source.backfill import digest_of
from eden_memory.source.message_mapping import MessageMapping
from eden_memory.source.source_mapping import InboxMapping
from tests.evals.conversations import there, turns
from tests.unit.source.mappings import (
    BEGAN,
    PATHS,
    SOURCE,
    change,
    map_one,
    message,
)

DEMO = Path(__file__).parents[3] / "examples/demo.jsonl"
KEY = "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEpAIBAAKCAQEA7bq9\n" * 12 + "-----END RSA PRIVATE KEY-----"
SECRETS = {  # in parts, so that no scanner takes them for real ones
    "aws": "AKIA" + "IOSFODNN7EXAMPLE",
    "github token": "ghp_" + "a1B2" * 9,
    "slack": "xoxb-" + "123456789012-1234567890123-abcDEF",
    "stripe": "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "sendgrid": "SG." + "a" * 22 + "." + "b" * 43,
    "twilio": "SK" + "0123456789abcdef" * 2,
    "mailchimp": "0123456789abcdef" * 2 + "-us12",
    "npm": "npm_" + "a1B2" * 9,
    "square oauth": "sq0csp-" + "a" * 43,
    "discord": "M" + "a" * 23 + "." + "b" * 6 + "." + "c" * 27,
    "provider key": "sk-proj-" + "a1B2" * 12,
    "access token": "glpat-" + "a1B2" * 5,
    "json web token": "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0." + "a1B2" * 10 + "aaa",
    "private key": KEY,
    "url password": "postgres://juniper:hunter22@db.slipway.example/yard",
    "secret": "api_key = " + "q7Wm2Zx9Lp4Rt6Yv",
    "card number": "4111 1111 1111 1111",
}
ODD = ("\ud800", "\udfff", "\0", "\U0010ffff", SEAM, "4" * 40, "²" * 16, "١" * 20, "eyJ" + "A" * 40 + ".")
ORDINARY = (
    "Nine of the keel bolts measure 310 mm, order 20260311, see https://slipway.example/orders/20260311?sort=newest.",
    "The commit is 9fceb02d0ae598e95dc970b74767f19372d61af8, of 2026-03-01T12:00:00.000Z.",
    "My number is +46 31 123 45 67, and 1234 5678 9012 3456 is no card.",
    "Password managers and tokens are a good idea, says everybody-who-knows-better-than-we-do.",
    "Die Donaudampfschifffahrtsgesellschaft fährt um 1772366400000 ab.",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ",
)


def redacting(limit: int = 8_000) -> MessageMapping:
    return MessageMapping(PATHS, SOURCE, encode_id, text_limit=limit, redactor=Redactor())


@pytest.mark.parametrize(("kind", "secret"), SECRETS.items())
def test_a_secret_in_a_message_is_replaced_and_the_rest_stays(kind: str, secret: str) -> None:
    assert may_hold_a_secret(secret), "the prefilter lets it pass to the detectors"
    found = map_one(message(content=f"Here it is: {secret} and thanks"), redacting())
    assert f"[redacted: {kind}]" in found.text
    assert found.text.startswith("Here it is: ")
    assert found.text.endswith(" and thanks")
    for part in secret.removeprefix("api_key = ").removeprefix("postgres://").split("@")[0].split("\n"):
        assert part not in found.text
    assert found.characters == len(f"Here it is: {secret} and thanks")


@pytest.mark.parametrize("before", ["a " * 142, "a" + " " * 1_970])
def test_a_secret_in_a_tools_call_is_replaced_before_the_call_is_cut(before: str) -> None:
    given = f"{before}{SECRETS['github token']} {'b ' * 50}"
    found = map_one(message(content="", tool_calls=[{"name": "find", "arguments": given}]), redacting())
    assert "ghp" not in found.text
    assert "[redact" in found.text or "[…]" in found.text


NEIGHBOURS = {
    "punctuation": "\"'()[]{}<>,;:!?|`~#$%&*=/\\^@ \n\t",
    "CJK": "为，。：「」",
    "kana": "はキー",
    "Hangul": "키는",
    "Cyrillic": "жЯ",
    "Arabic": "مؤ٣",
    "Latin": "éßñ",
    "emoji": "🔑❤️👩‍💻",
    "unseen": "\u200b\u200f\ufeff\u3000\xa0\ud800",
}


@pytest.mark.parametrize("neighbours", NEIGHBOURS.values(), ids=NEIGHBOURS)
@pytest.mark.parametrize(("kind", "secret"), SECRETS.items())
def test_a_secret_is_found_beside_any_letter_of_another_script(
    kind: str, secret: str, neighbours: str
) -> None:
    redact = Redactor()
    for before, after in [
        *product(neighbours, "\0"),
        *product("\0", neighbours),
        *zip(neighbours, neighbours, strict=True),
    ]:
        found = redact(f"{before}{secret}{after}")
        assert f"[redacted: {kind}]" in found, (before, after)
        assert found.startswith(before)
        assert found.endswith(after) or (kind, after) in AT_END_OF_VALUES


AT_END_OF_VALUES = {("secret", "="), ("secret", "/")}
"""An assigned value may end with them: those of base64 do."""


@pytest.mark.parametrize(
    "value",
    [
        "Größe2024-geheim-passwort12",
        "Müller12345678901234",
        "ключ1234567890123456abcd",
        "abcdefgh1234567ü",
        "Größe-Schlüssel-Übung12",
    ],
)
def test_a_named_secret_may_hold_letters_of_other_scripts(value: str) -> None:
    assert Redactor()(f"password: {value}") == "password: [redacted: secret]"
    assert Redactor()("password abcdefgh12345678是我的密码") == "password [redacted: secret]是我的密码"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("凭证为sk-proj-abcd1234efgh5678ijkl9012，请保密", "凭证为[redacted: provider key]，请保密"),
        ("密码password: q7Wm2Zx9Lp4Rt6Yv，谢谢", "密码password: [redacted: secret]，谢谢"),
        ("密码password：q7Wm2Zx9Lp4Rt6Yv，谢谢", "密码password：[redacted: secret]，谢谢"),
        ("тут password — q7Wm2Zx9Lp4Rt6Yv", "тут password — [redacted: secret]"),
        ("OPENAI_API_KEY=q7Wm2Zx9Lp4Rt6Yv", "OPENAI_API_KEY=[redacted: secret]"),
        ("Visa 4111 1111 1111 1111 12/27 123", "Visa [redacted: card number] 12/27 123"),
        (
            "Amex 3782-822463-10005, Diners 3056 9309 0259 04",
            "Amex [redacted: card number], Diners [redacted: card number]",
        ),
    ],
)
def test_what_stands_around_a_secret_stays(text: str, left: str) -> None:
    assert Redactor()(text) == left


@example(35, 693803564380)
@example(49, 15420323751)
@given(
    st.sampled_from((1, 10, 33, 35, 44, 45, 49, 50, 51, 52, 53, 54, 86, 91, 98, 99)),
    st.integers(0, 10**12 - 1),
)
def test_the_number_of_a_telephone_is_no_card(reported_by: int, serial: int) -> None:
    digits = f"{reported_by:02}{serial:012}"
    (imei,) = [found for check in range(10) if has_check_digit(found := f"{digits}{check}")]
    assert Redactor()(f"IMEI {imei}") == f"IMEI {imei}"


FRAGMENTS = [
    *SECRETS.values(),
    *(
        "://",
        "a:b@",
        "eyJ",
        ".",
        "-----BEGIN PRIVATE KEY-----",
        "xoxb-1-a",
        "eyJhIjoxfQ.MQ",
        "password",
        "token: ",
    ),
    *(
        "4",
        "4111",
        " ",
        "-",
        "é",
        "中",
        "\n",
        "\x1c",
        "\x85",
        "\u2003",
        "\ud800",
        "AKIA",
        "aws key ",
        "sk-",
        "x" * 15,
    ),
]


@example(["postgres://a:b@c"])
@example(["eyJhIjoxfQ.MQ"])
@example(["xoxb-1-a"])
@example(["-----BEGIN PRIVATE KEY-----", "\n"])
@given(st.lists(st.sampled_from(FRAGMENTS) | st.text("a1:/@.-_ é中", max_size=20), max_size=6))
def test_the_prefilter_lets_every_text_pass_to_a_detector_that_finds_something(parts: list[str]) -> None:
    text = "".join(parts)
    assert may_hold_a_secret(text) or redaction._redacted(text) == text  # pyright: ignore[reportPrivateUsage]


def web_token(claims: bytes) -> str:
    return f"eyJhbGciOiJIUzI1NiJ9.{urlsafe_b64encode(claims).decode().rstrip('=')}.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    "claims",
    [b"[" * 2_000, b'{"a":' * 5_000, b"[" * 300_000, b'{"a":1e' + b"9" * 5_000 + b"}"],
    ids=lambda claims: claims[:8],
)
def test_a_web_token_that_cannot_be_judged_counts_as_one(claims: bytes) -> None:
    assert Redactor()(f"here {web_token(claims)} it is") == "here [redacted: json web token] it is"


@example(["\ud800", web_token(b"\xff" * 40)])
@given(st.lists(st.sampled_from([*SECRETS.values(), *ODD]) | st.text(max_size=20), max_size=8))
def test_no_text_makes_the_redactor_raise(parts: list[str]) -> None:
    Redactor()("".join(parts))


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_texts_come_through_as_they_are(text: str) -> None:
    assert Redactor()(text) == text


def test_the_demos_conversation_holds_no_secret() -> None:
    texts = [text_of(json.loads(line)["content"]) for line in DEMO.read_text().splitlines()]
    assert [text for text in texts if Redactor()(text) != text] == []


@pytest.mark.skipif(not there(), reason="the conversations are not here")
def test_ordinary_chat_between_people_holds_no_secret() -> None:
    assert [text for text in turns() if Redactor()(text) != text] == []


def _asked(**fields: Any) -> dict[str, Any]:
    return {"_id": "r1", "asked_by": "test", **fields}


def test_what_the_inbox_asks_for_loses_its_secrets_too() -> None:
    requests = InboxMapping(SOURCE, encode_id, 8_000, Redactor())
    version = change(1, "insert").version
    added = _asked(kind="added_text", session_id="s1", text=f"use {SECRETS['aws']}")
    command = _asked(
        kind="fact_command",
        scope=Scope.of_user("s.a", "s.u").model_dump(mode="json"),
        action="add",
        text=f"Ada's key is {SECRETS['aws']}.",
        by="person",
        reason=SECRETS["aws"],
    )
    for asked in (added, command):
        record = requests.record(asked, version, BEGAN)
        assert SECRETS["aws"].encode() not in (record.value or b"")
        assert b"[redacted: aws]" in (record.value or b"")


EXAMPLES = Path(__file__).parents[3] / "schemas/examples"


def imported(value: dict[str, Any]) -> dict[str, Any]:
    return json.loads(record_import.redacted(json.dumps(value).encode(), Redactor()))


def test_a_fact_of_an_export_is_redacted_with_its_hash_and_without_the_vector_of_the_secret() -> None:
    value = (EXAMPLES / "FactChanged/v1/edited_by_a_person.json").read_bytes()
    assert record_import.redacted(value, Redactor()) == value
    fact = json.loads(value)
    found = imported(fact | {"text": f"The key is {SECRETS['aws']}."})
    assert found["text"] == "The key is [redacted: aws]."
    assert found["hash"] != fact["hash"]
    assert fact["embedding"] is not None
    assert found["embedding"] is None
    decode("FactChanged", 1, json.dumps(found).encode())
    explained = imported(fact | {"reason": SECRETS["aws"]})
    assert explained == fact | {"reason": "[redacted: aws]"}


@pytest.mark.parametrize("name", ["ReflectionFormed", "ScopeConsolidated"])
def test_the_reason_of_a_command_in_an_export_is_redacted(name: str) -> None:
    events = map(json.loads, (path.read_bytes() for path in sorted((EXAMPLES / name / "v1").glob("*.json"))))
    event = next(event for event in events if event.get("command"))
    spoilt = event | {"command": event["command"] | {"reason": f"key {SECRETS['aws']}"}}
    assert imported(spoilt)["command"]["reason"] == "key [redacted: aws]"


def test_the_detectors_version_leaves_messages_without_secrets_the_same() -> None:
    plain, now = MessageMapping(PATHS, SOURCE, encode_id, text_limit=8_000), redacting()
    assert now.version != plain.version
    assert (rules_of(now.version), settings_of(now.version)) == (
        rules_of(plain.version),
        settings_of(plain.version),
    )
    for document in (message(role="assistant"), message()):
        records = [mapping.record(document, "1" * 16, b"", "stream") for mapping in (plain, now)]
        assert len({digest_of(record.value) for record in records}) == 1
    assert len(now.version) <= 32


@pytest.mark.parametrize("at", range(300, 420, 7))
def test_a_secret_that_a_long_text_is_cut_in_leaves_no_half(at: int) -> None:
    text = "word " * (at // 5) + SECRETS["provider key"] + " word" * 400
    assert "a1B2" not in Redactor()(cut(text, 600)) or "sk-proj" not in text[:400]
    assert "a1B2a1B2a1B2" not in Redactor()(cut(text, 600))


ATTACKS = (
    "eyJ" * 4_000,
    "://" * 4_000,
    "://" + ":" * 12_000,
    "-----BEGIN PRIVATE KEY-----" * 500,
    "sk-" * 4_000,
    "4" * 12_000,
    "token " * 2_000,
    "aws key " * 1_500,
    "4 " * 6_000,
    "a" * 12_000,
    "\n[…]\n" * 2_400,
    "éeyJa" * 2_400,
    "password为" * 1_300,
    "4111 " * 2_400,
    "[" * 12_000,
    "eyJ9.W1tb" * 1_300,
    "@://" * 3_000,
)


@pytest.mark.parametrize("text", ATTACKS, ids=lambda text: text[:12])
def test_no_text_takes_more_than_its_length(text: str) -> None:
    redact = Redactor()
    redact(text)
    short, long = (_seconds(redact, text * times) for times in (1, 4))
    assert long < 12 * max(short, 0.002), "four times the text takes about four times as long"


def test_one_long_word_takes_about_as_long_as_many_short_ones() -> None:
    redact, short = Redactor(), "h" * 16 + " "
    word, words = (_seconds(redact, text * 6_000) for text in (short.replace(" ", "h"), short))
    assert word < 6 * max(words, 0.002)


@given(
    st.lists(st.sampled_from((SEAM, SEAM[1:], "\n", " ", "é", "a", "b" * 15, "c" * 16, "d" * 399, "e" * 401)))
)
def test_halves_beside_a_seam_are_those_that_one_pattern_finds(parts: list[str]) -> None:
    part = "[!-~]{16,400}"
    pattern = rf"{part}(?={re.escape(SEAM)})|(?<={re.escape(SEAM)}){part}(?:\n{part})*"
    assert Redactor()("".join(parts)) == re.sub(pattern, "[redacted: cut in half]", "".join(parts))


def _seconds(redact: Redactor, text: str) -> float:
    def once() -> float:
        begun = process_time()
        redact(text)
        return process_time() - begun

    return min(once() for _ in range(3))


@given(st.text(max_size=300))
def test_redacting_again_changes_nothing(text: str) -> None:
    redact = Redactor()
    assert redact(redact(text)) == redact(text)


def test_an_edited_fact_is_decoded_after_redaction() -> None:
    requests = InboxMapping(SOURCE, encode_id, 8_000, Redactor())
    edit = _asked(
        kind="fact_command",
        scope=Scope.of_agent("s.a").model_dump(mode="json"),
        action="edit",
        fact_id="f1",
        text=SECRETS["card number"],
        by="person",
    )
    record = requests.record(edit, change(1, "insert").version, BEGAN)
    found = decode("FactCommanded", FactCommanded.VERSION, record.value or b"")
    assert isinstance(found, FactCommanded)
    assert found.text == "[redacted: card number]"


def test_long_texts_without_spaces_keep_what_stands_at_the_cut() -> None:
    text = "我的船叫海鸥。" * 100
    assert Redactor()(f"{text}{SEAM}{text}") == f"{text}{SEAM}{text}"
