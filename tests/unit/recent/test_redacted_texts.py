"""Texts that are read again are redacted once for each version, and what is cached of them is bounded."""

from eden_memory.redaction import CACHED_ENTRY_BYTES, RedactedTexts, Redactor

KEY = "AKIA" + "IOSFODNN7EXAMPLE"
LONG = "We sail to Faro. " * 1_000


class Counting(Redactor):
    """Counts what it is given."""

    def __init__(self) -> None:
        self.given: list[str] = []

    def __call__(self, text: str) -> str:
        self.given.append(text)
        return super().__call__(text)


async def test_a_text_is_redacted_once_and_again_when_it_is_edited() -> None:
    counting = Counting()
    texts = RedactedTexts(counting)
    secret, plain = f"{LONG}{KEY}", f"{LONG}The end."
    shown = [f"{LONG}[redacted: aws]", plain]
    for _ in range(3):
        assert await texts.of([secret, plain]) == shown
    assert counting.given == [secret, plain]
    assert await texts.of([f"{plain}{KEY}", secret]) == [f"{plain}[redacted: aws]", shown[0]]
    assert len(counting.given) == 3


async def test_what_was_not_read_for_longest_is_redacted_again() -> None:
    counting = Counting()
    texts = RedactedTexts(counting, most_bytes=2 * CACHED_ENTRY_BYTES)
    first, second, third = (f"{number} {LONG}" for number in range(3))
    for text in (first, second, first, third, first, second):
        assert await texts.of([text]) == [text]
    assert counting.given == [first, second, third, second]


async def test_nothing_is_redacted_where_that_is_switched_off() -> None:
    assert await RedactedTexts(None).of([f"{LONG}{KEY}"]) == [f"{LONG}{KEY}"]
