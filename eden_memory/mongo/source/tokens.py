"""The cluster time inside a change stream's resume token.

A token is a KeyString in hexadecimal: `82` (the type byte of a timestamp), 8 digits of seconds, 8 of the counter,
and what tells events of one time apart. The format is not documented, but has stood since MongoDB 4.0; a canary
test holds it against a running server.
"""

TIMESTAMP_TYPE = "82"


def token_time(token: str) -> tuple[int, int]:
    """Seconds since the epoch and counter of a token's cluster time; a ValueError if it is not of that form."""
    if not token.startswith(TIMESTAMP_TYPE) or len(token) < 18:
        raise ValueError(f"not a resume token: {token[:24]!r}")
    return int(token[2:10], 16), int(token[10:18], 16)
