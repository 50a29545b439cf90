"""Identity of statements: the normalised form of a text, its hash, and ids of facts. Pure."""

import unicodedata
from hashlib import blake2b, sha256

END = " .!?。,;:"
"""Characters stripped from the end, in any number; NFKC has unified their full-width and joined forms."""


def normalised(text: str) -> str:
    """Normalise a text: NFKC, case folded, single spaces, no punctuation at the end; idempotent."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    joined = " ".join(folded.split())
    return joined.rstrip(END) or joined


def fact_hash(text: str) -> str:
    """Return the SHA-256 of the normalised text, as 64 hexadecimal digits."""
    return sha256(normalised(text).encode()).hexdigest()


def fact_id(origin: str, scope_key: str, number: int) -> str:
    """Return the id of the fact that the `number`-th statement of a formation or command may become: 32 digits."""
    return blake2b(f"{origin}\x00{scope_key}\x00{number}".encode(), digest_size=16).hexdigest()
