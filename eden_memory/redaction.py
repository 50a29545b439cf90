"""Replace secrets in texts before they become memory: keys, tokens, passwords in addresses, card numbers.

The detectors of named keys are those of bc-detect-secrets, a maintained fork of detect-secrets. A text without a word
of 16 characters and without 13 digits in a row has no secret that they know: one pass clears most chat messages.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from hashlib import blake2b
from typing import Any, NamedTuple, cast

from eden_memory.metrics import REDACTED
from eden_memory.settings import Settings
from eden_memory.task_ending import off_the_loop

VERSION = "s1"
"""Version of the detectors. Increase it whenever what they find changes, also by an update of the library."""
SHORTEST = 16
"""Length of the shortest secret, except card numbers."""
BY_LIBRARY = {
    "aws": "AWSKeyDetector",
    "discord": "DiscordBotTokenDetector",
    "github_token": "GitHubTokenDetector",
    "mailchimp": "MailchimpDetector",
    "npm": "NpmDetector",
    "sendgrid": "SendGridDetector",
    "slack": "SlackDetector",
    "square_oauth": "SquareOAuthDetector",
    "stripe": "StripeDetector",
    "twilio": "TwilioKeyDetector",
}
"""Modules and classes of the library whose patterns take linear time on any text."""
SEAM = "\n[…]\n"
"""Where a long text is cut (`eden_memory.mongo.document_fields.CUT`): a secret there may have lost a half."""
CACHED_BYTES = 16_000_000
"""Of redacted texts, in each place that reads texts again."""
CACHED_ENTRY_BYTES = 200
FEW_CHARACTERS = 10_000
"""Redacted within 5 ms."""
TOGETHER = 5
"""Texts that are redacted in one turn of the thread, which others wait for, too."""

_FEWEST_DIGITS = 13
"""Of a card number."""
_DIGITS = re.compile(rf"[0-9](?:[ -]?[0-9]){{{_FEWEST_DIGITS - 1}}}")
_LONG_WORD = b"x" * SHORTEST
_AS_WORDS = bytes(ord(" " if chr(byte) in " \t\n\r\v\f" else "x") for byte in range(256))
_NO_DIGITS = bytes(byte for byte in range(256) if chr(byte) not in "0123456789")
_CARD = re.compile(r"(?<![\w.+-])[2-6](?:[ -]?[0-9]){12,18}(?![\w-])")
_OURS: Mapping[str, str] = {
    "private_key": r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----(?s:.*?)"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----|\Z)",
    "provider_key": r"(?<![\w-])sk[-_](?=[\w-]*[0-9])[\w-]{20,}|(?<![\w-])AIza[\w-]{35}",
    "access_token": r"(?<![\w-])(?:github_pat_\w{22,}|gl(?:pat|dt|rt)-[\w-]{20,}|hf_[A-Za-z0-9]{30,}"
    r"|pypi-[\w-]{40,}|xapp-[\w-]{20,}|ya29\.[\w-]{20,})",
    "secret": r"(?P<kept>(?i:\b(?:(?:api|access|secret)[ _-]?key|secret|(?:auth[ _-]?)?token|password|passwd|bearer)"
    r"[\"']?(?:\s{1,3}is)?\s{0,3}[:= ]\s{0,3}[\"']?))"
    r"(?=[\w+/=.-]{0,200}[0-9])(?=[\w+/=.-]{0,200}[A-Za-z])[\w+/=.-]{16,}",
    "url_password": r"(?<=://)[^\s:/@]{1,128}:[^\s/@]{1,128}(?=@)",
}
_JWT = re.compile(r"(?<![\w-])eyJ[\w-]+\.[\w-]+(?:\.[\w-]*)?")
_LONGEST_HALF = 400
_PART = f"[!-~]{{{SHORTEST},{_LONGEST_HALF}}}"
"""Of a secret, beside the seam; text in scripts without spaces stays."""
_AT_SEAM = re.compile(f"(?={re.escape(SEAM)})")
_BEFORE_SEAM, _AFTER_SEAM = re.compile(rf"{_PART}\Z"), re.compile(rf"{_PART}(?:\n{_PART})*")


class Detector(NamedTuple):
    """A kind of secret: its pattern, and a check that a match is real."""

    kind: str
    pattern: re.Pattern[str]
    is_real: Callable[[str], bool] = bool


class Redactor:
    """Replaces each secret of a text by `[redacted: <kind>]`, and counts it; other texts come back as they are."""

    version = VERSION

    def __call__(self, text: str) -> str:
        """Return the text without its secrets."""
        return _redacted(text) if may_hold_a_secret(text) else text

    def document(self, value: Any) -> Any:
        """Return a document, or any value in it, with each text redacted; ids stay."""
        match value:
            case str():
                return self(value)
            case Mapping():
                fields = cast("Mapping[str, Any]", value).items()
                return {name: field if name == "_id" else self.document(field) for name, field in fields}
            case list() | tuple():
                return [self.document(part) for part in cast("Sequence[Any]", value)]
            case _:
                return value


class RedactedTexts:
    """Redacts texts that are read again and again: each version of a text once, and beside the event loop."""

    def __init__(self, redactor: Redactor | None, most_bytes: int = CACHED_BYTES) -> None:
        self._redactor, self._most = redactor, most_bytes
        self._cached: OrderedDict[bytes, str | None] = OrderedDict()
        """By a hash of the text; None: nothing is to be redacted in it."""
        self._bytes = 0

    async def of(self, texts: Sequence[str]) -> list[str]:
        """Return the texts without their secrets."""
        redactor = self._redactor
        if redactor is None:
            return list(texts)
        if sum(map(len, texts)) <= FEW_CHARACTERS:
            return list(map(redactor, texts))
        found: list[str] = []
        for start in range(0, len(texts), TOGETHER):
            work = partial(self._redacted, texts[start : start + TOGETHER], redactor)
            found += await off_the_loop(work)
        return found

    def _redacted(self, texts: Sequence[str], redactor: Redactor) -> list[str]:
        return [self._text(text, redactor) for text in texts]

    def _text(self, text: str, redactor: Redactor) -> str:
        name = blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
        if name not in self._cached:
            redacted = redactor(text)
            self._cached[name] = None if redacted == text else redacted
            self._bytes += _size(self._cached[name])
            while self._bytes > self._most:
                self._bytes -= _size(self._cached.popitem(last=False)[1])
            return redacted
        self._cached.move_to_end(name)
        cached = self._cached[name]
        return text if cached is None else cached


def _size(cached: str | None) -> int:
    return CACHED_ENTRY_BYTES + 4 * len(cached or "")


def redactor_of(settings: Settings) -> Redactor | None:
    """Return the redactor of an installation; None where it is switched off."""
    return Redactor() if settings.messages.redact_secrets else None


def without_secrets(text: str, settings: Settings) -> str:
    """Return a text as the installation redacts it; as it is where that is switched off."""
    redact = redactor_of(settings)
    return text if redact is None else redact(text)


def may_hold_a_secret(text: str) -> bool:
    """Return whether a text is worth the detectors' time: quickly, and never False where they would find one.

    Two looks at its bytes clear most texts: a long word is long in bytes, too, and a card number has its digits.
    """
    raw = text.encode(errors="replace")
    if _LONG_WORD in raw.translate(_AS_WORDS) and max(map(len, text.split()), default=0) >= SHORTEST:
        return True
    return len(raw.translate(None, _NO_DIGITS)) >= _FEWEST_DIGITS and _DIGITS.search(text) is not None


def is_card_number(text: str) -> bool:
    """Check a card number by its check digit (ISO/IEC 7812, Luhn)."""
    digits = [int(character) for character in text if character.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return len(digits) >= _FEWEST_DIGITS and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _redacted(text: str) -> str:
    for detector in _detectors():
        text = detector.pattern.sub(partial(_mark, detector), text)
    return _without_halves(text) if SEAM in text else text


def _without_halves(text: str) -> str:
    """Look beside the seams alone: a pattern over all of a long text takes 2 µs a character."""
    parts, done = list[str](), 0
    for seam in _AT_SEAM.finditer(text):
        begins, ends = seam.start(), seam.start() + len(SEAM)
        before = _BEFORE_SEAM.search(text, max(done, begins - _LONGEST_HALF), begins)
        for half in (before, _AFTER_SEAM.match(text, max(done, ends))):
            if half is not None:
                parts += [text[done : half.start()], _mark(Detector("cut_in_half", half.re), half)]
                done = half.end()
    return "".join([*parts, text[done:]])


def _mark(detector: Detector, found: re.Match[str]) -> str:
    if not detector.is_real(found.group()):
        return found.group()
    REDACTED.labels(detector.kind).inc()
    kept = found.groupdict().get("kept") or ""
    return f"{kept}[redacted: {detector.kind.replace('_', ' ')}]"


@cache
def _detectors() -> tuple[Detector, ...]:
    return (
        *_by_library(),
        Detector("json_web_token", _JWT, _library("jwt", "JwtTokenDetector").is_formally_valid),
        *(Detector(kind, re.compile(pattern)) for kind, pattern in _OURS.items()),
        Detector("card_number", _CARD, is_card_number),
    )


def _by_library() -> Iterator[Detector]:
    for module, name in BY_LIBRARY.items():
        for pattern in _library(module, name).denylist:
            yield Detector(module, pattern)


def _library(module: str, name: str) -> Any:
    """Return a detector class of the library, which takes a while to load: when the first text needs it."""
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(f"detect_secrets.plugins.{module}"), name)
