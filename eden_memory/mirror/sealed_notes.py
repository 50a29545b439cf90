"""Notes of a mirror, encrypted: they hold hashes, from which a forgotten text could be guessed.

The key comes from the installation's secret, which is in MongoDB and not in the folder.
"""

import hmac
import json
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

from cryptography.fernet import Fernet, InvalidToken

from eden_memory.logs import LibraryLogger
from eden_memory.mirror.atomic_files import write_text

log = LibraryLogger()


class SealedNotes:
    """Writes and reads notes with the key of one installation."""

    def __init__(self, secret: bytes) -> None:
        self._key = hmac.digest(secret, b"eden mirror", "sha256")
        self._cipher = Fernet(urlsafe_b64encode(self._key))

    def write(self, path: Path, noted: Any) -> None:
        """Write a note as JSON, encrypted."""
        write_text(path, self._cipher.encrypt(json.dumps(noted).encode()).decode())

    def read(self, path: Path) -> Any:
        """Return a note; None if there is none, or it is damaged or has another key: then it is removed."""
        try:
            return json.loads(self._cipher.decrypt(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (InvalidToken, ValueError):
            log.warning("a note of the mirror cannot be read", file=f"{path.parent.name}/{path.name}")
            path.unlink()
            return None

    def name(self, text: str) -> str:
        """Return a short name that stands for a text, and from which nobody without the key can guess it."""
        return hmac.new(self._key, text.encode(), "sha256").hexdigest()[:16]
