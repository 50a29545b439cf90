"""Replace secrets in texts before they become memory, and remove characters that a reader would not see.

The detectors of named keys are those of bc-detect-secrets, a maintained fork of detect-secrets. Secrets consist of
ASCII, so patterns are compiled for ASCII: a letter of another script beside a secret ends a word as a space does.
Only what is named a secret may hold other letters, too.

These are control characters, surrogates, and what Unicode calls ignorable: direction marks, tags, variation
selectors, fillers, and what has no width. Format characters that are drawn stay, such as the signs of Arabic numbers.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from hashlib import blake2b
from threading import Lock
from typing import Any, NamedTuple

from eden_memory.metrics import REDACTED
from eden_memory.settings import Settings
from eden_memory.tasks import off_the_loop

VERSION = "s2"
"""Version of the detectors. Increase it whenever what they find changes, also by an update of the library."""
SHORTEST = 16
"""Length of the shortest secret, except card numbers, private keys and passwords in addresses."""
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
_AS_WORDS = bytes(ord("x") if ord("!") <= byte <= ord("~") else ord(" ") for byte in range(256))
_NO_DIGITS = bytes(byte for byte in range(256) if chr(byte) not in "0123456789")
_MOST_DIGITS = 19
_ISSUED = re.compile(
    r"4(?:.{12}|.{15}|.{18})"  # Visa
    r"|(?:5[1-5]|2[2-7]).{14}"  # Mastercard, Mir
    r"|3[47].{13}"  # American Express
    r"|3(?:0[0-59]|[689].).{11}"  # Diners Club
    r"|3(?:0[0-59]|[689].|5[2-8]).{13,16}"  # Diners Club, JCB
    r"|(?:5[0678]|6.).{14,17}"  # Maestro, UnionPay, Discover, RuPay, Elo
)
"""First digits and length of card numbers: a device's number (IMEI), for example, has the same check digit."""
_BESIDE = r"(?:[:= ]|[^\x00-\x7f]{1,3})"
"""Between the name of a secret and its value."""
_NAMES = re.compile(r"(?:api|access|secret)[ _-]?key|secret|token|password|passwd|bearer", re.IGNORECASE)
_OURS: Mapping[str, str] = {
    "private_key": r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----(?s:.*?)"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----|\Z)",
    "provider_key": r"(?<![\w-])sk[-_](?=[\w-]*[0-9])[\w-]{20,}|(?<![\w-])AIza[\w-]{35}",
    "access_token": r"(?<![\w-])(?:github_pat_\w{22,}|gl(?:pat|dt|rt)-[\w-]{20,}|hf_[A-Za-z0-9]{30,}"
    r"|pypi-[\w-]{40,}|xapp-[\w-]{20,}|ya29\.[\w-]{20,})",
    "secret": r"(?P<kept>(?i:(?<![A-Za-z0-9])"
    r"(?:(?:api|access|secret)[ _-]?key|secret|(?:auth[ _-]?)?token|password|passwd|bearer)"
    r"[\"']?(?:\s{1,3}is)?\s{0,3}" + _BESIDE + r"\s{0,3}[\"']?))"
    r"(?=[\w+/=.-]{0,200}[0-9])(?=[\w+/=.-]{0,200}[A-Za-z])[\w+/=.-]{16,}",
}
_URL_PASSWORD = re.compile(r"(?<=://)[^\s:/@]{1,128}:[^\s/@]{1,128}(?=@)")
_JWT = re.compile(r"(?<![\w-])eyJ[\w-]+\.[\w-]+(?:\.[\w-]*)?", re.ASCII)
_LONGEST_HALF = 400
_PART = f"[!-~]{{{SHORTEST},{_LONGEST_HALF}}}"
"""Of a secret, beside the seam; text in scripts without spaces stays."""
_AT_SEAM = re.compile(f"(?={re.escape(SEAM)})")
_BEFORE_SEAM, _AFTER_SEAM = re.compile(rf"{_PART}\Z"), re.compile(rf"{_PART}(?:\n{_PART})*")


def _is_long(text: str) -> bool:
    return len(text) >= SHORTEST


class Detector(NamedTuple):
    """A kind of secret: its pattern, and a check that a match is real. A match that the check fails on is real."""

    kind: str
    pattern: re.Pattern[str]
    is_real: Callable[[str], bool] = _is_long


class Redactor:
    """Replaces each secret of a text by `[redacted: <kind>]`, and counts it; other texts come back as they are."""

    version = VERSION

    def __call__(self, text: str) -> str:
        """Return the text without its secrets."""
        return _redacted(text) if may_hold_a_secret(text) else text


class RedactedTexts:
    """Redacts texts that are read again and again: each version of a text once, and beside the event loop."""

    def __init__(self, redactor: Redactor | None, most_bytes: int = CACHED_BYTES) -> None:
        self._redactor, self._most = redactor, most_bytes
        self._cached: OrderedDict[bytes, str | None] = OrderedDict()
        """By a hash of the text; None: nothing is to be redacted in it."""
        self._bytes, self._lock = 0, Lock()

    async def of(self, texts: Sequence[str]) -> list[str]:
        """Return the texts without their secrets."""
        redactor = self._redactor
        if redactor is None:
            return list(texts)
        if sum(map(len, texts)) <= FEW_CHARACTERS:
            return self._redacted(texts, redactor)
        found: list[str] = []
        for start in range(0, len(texts), TOGETHER):
            work = partial(self._redacted, texts[start : start + TOGETHER], redactor)
            found += await off_the_loop(work)
        return found

    def _redacted(self, texts: Sequence[str], redactor: Redactor) -> list[str]:
        return [self._text(text, redactor) for text in texts]

    def _text(self, text: str, redactor: Redactor) -> str:
        name = blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
        with self._lock:
            if name in self._cached:
                self._cached.move_to_end(name)
                cached = self._cached[name]
                return text if cached is None else cached
        redacted = redactor(text)
        with self._lock:
            if name not in self._cached:
                self._cached[name] = None if redacted == text else redacted
                self._bytes += _size(self._cached[name])
            while self._bytes > self._most:
                self._bytes -= _size(self._cached.popitem(last=False)[1])
        return redacted


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

    A text without 16 printable ASCII characters in a row and without 13 digits in a row holds no secret, except for
    private keys, passwords in addresses, and what is called a secret and has letters of other scripts.
    """
    if "-----BEGIN" in text or ("@" in text and "://" in text):
        return True
    if not text.isascii() and _NAMES.search(text) is not None:
        return True
    raw = text.encode(errors="replace")
    if _LONG_WORD in raw.translate(_AS_WORDS):
        return True
    return len(raw.translate(None, _NO_DIGITS)) >= _FEWEST_DIGITS and _DIGITS.search(text) is not None


def is_card_number(text: str) -> bool:
    """Return whether a number is one of a card: by its issuer's first digits, its length and its check digit."""
    return _ISSUED.fullmatch(re.sub("[ -]", "", text)) is not None and has_check_digit(text)


def has_check_digit(text: str) -> bool:
    """Check the last digit of a number as cards and devices have it (ISO/IEC 7812, Luhn)."""
    digits = [int(character) for character in text if character.isdecimal()]
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
    if not _is_real(detector, found.group()):
        return found.group()
    REDACTED.labels(detector.kind).inc()
    kept = found.groupdict().get("kept") or ""
    return f"{kept}[redacted: {detector.kind.replace('_', ' ')}]"


def _is_real(detector: Detector, text: str) -> bool:
    try:
        return detector.is_real(text)
    except Exception:  # noqa: BLE001 - no text may stop who reads it: a web token nested too deeply, for example
        return True


def _is_web_token(text: str) -> bool:
    return _is_long(text) and _library("jwt", "JwtTokenDetector").is_formally_valid(text)


@cache
def _detectors() -> tuple[Detector, ...]:
    return (
        *_by_library(),
        Detector("json_web_token", _JWT, _is_web_token),
        *(Detector(kind, re.compile(pattern, re.ASCII)) for kind, pattern in _OURS.items()),
        Detector("secret", re.compile(_OURS["secret"].replace(_BESIDE, "[:= ]"))),
        Detector("url_password", _URL_PASSWORD, bool),
        *(
            Detector("card_number", _card(digits), is_card_number)
            for digits in range(_MOST_DIGITS, _FEWEST_DIGITS - 1, -1)
        ),
    )


def _by_library() -> Iterator[Detector]:
    for module, name in BY_LIBRARY.items():
        for pattern in _library(module, name).denylist:
            yield Detector(module, re.compile(pattern.pattern, pattern.flags & ~re.UNICODE | re.ASCII))


def _card(digits: int) -> re.Pattern[str]:
    """Return the pattern of a card number of one length; other numbers may stand behind it (`… 1111 12/27`)."""
    return re.compile(rf"(?<![\w.+-])[2-6](?:[ -]?[0-9]){{{digits - 1}}}(?![\w-])", re.ASCII)


def _library(module: str, name: str) -> Any:
    """Return a detector class of the library, which takes a while to load: when the first text needs it."""
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(f"detect_secrets.plugins.{module}"), name)


_LINE_END = re.compile("\r\n|[\r\x0b\x0c\x1c-\x1f\x85\u2028\u2029]")
_UNSEEN = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ud800-\udfff\ufdd0-\ufdef\ufff0-\ufffb\ufffe\uffff"
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
"""Runs of them. A test compares these ranges with Unicode's categories."""
_JOINING = re.compile("(?:[\ufe0e\ufe0f]|[\u180b-\u180f])?[\u200c\u200d]?")
"""What scripts and emoji need: how an emoji looks, Mongolian forms, and one joiner. All else of a run goes."""
_KEYCAP = re.compile("[0-9#*]\ufe0f")


def without_unseen(text: str) -> str:
    """Return a text as it looks; each of its lines ends with a line feed.

    Joiners (U+200C, U+200D), the two selectors of emoji and those of Mongolian stay: one selector, then one joiner,
    and not behind ASCII, because a message hides in runs of them.
    """
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return _UNSEEN.sub(_seen, _LINE_END.sub("\n", text))


def _seen(run: re.Match[str]) -> str:
    at = run.start()
    before = run.string[at - 1 : at] if at else ""
    if before.isascii() or before.isspace():  # also nothing
        keycap = _KEYCAP.match(run.string, at - 1) if before else None
        return keycap.group()[1:] if keycap else ""
    joining = _JOINING.match(run.group())
    return joining.group() if joining else ""
