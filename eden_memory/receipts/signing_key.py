"""The key that signs receipts: made once, in a file that only its owner may read."""

import os
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from eden_memory.errors import Conflict, EdenError

HINT = "EDEN_RECEIPTS_KEY names the file; `eden setup` makes it where it is missing."


def ensured_key(path: Path) -> bool:
    """Make the key if there is none, and return whether it was made; an EdenError if the file cannot be written."""
    if path.exists():
        return False
    key = Ed25519PrivateKey.generate()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    except Conflict:  # another process was making it at the same moment
        return False
    return True


def write_private(path: Path, content: bytes) -> None:
    """Write a new file that only its owner may read; Conflict if there is one, an EdenError if it cannot be."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        raise Conflict(f"{path} exists", "Name another file.") from None
    except OSError as error:
        raise EdenError(f"{path} cannot be written: {error.strerror}", "Name another file.") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def signing_key(path: Path) -> Ed25519PrivateKey:
    """Return the key; an EdenError if there is none, or if others may read the file."""
    try:
        mode, pem = path.stat().st_mode, path.read_bytes()
    except OSError as error:
        raise EdenError(f"there is no key for receipts in {path}: {error.strerror}", HINT) from None
    if mode & 0o077:
        raise EdenError(f"others may read the key for receipts in {path}", f"chmod 600 {path}")
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise EdenError(f"{path} does not contain an Ed25519 key", HINT)
    return key
