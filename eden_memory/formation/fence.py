"""The fence around what prompts show as data: unguessable to whoever writes content, the same at every attempt."""

import hmac
from hashlib import sha256


class Fence:
    """`secret` is the installation's; one secret for all its namespaces, so that a prompt reads the same in each."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) < 16:
            raise ValueError("a secret of fewer than 16 bytes can be guessed")
        self._secret = secret

    def around(self, decision: str) -> str:
        """The token of one decision, `<<` and 20 hexadecimal digits and `>>`: a line above and below the data.

        `decision` names what is decided (`fact-extraction/<formation>`), never an attempt or a namespace.
        """
        return f"<<{hmac.new(self._secret, decision.encode(), sha256).hexdigest()[:20]}>>"
