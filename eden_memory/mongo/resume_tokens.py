"""The cluster time inside a change stream's resume token, and the event's position among those of that time.

A token is a KeyString in hexadecimal: `82` (the type byte of a timestamp), 8 digits of seconds, 8 of the counter,
then integers: the format's version, from version 1 on the token's type, and the position of the event within its
transaction. The format is not documented, but has stood since MongoDB 4.0; canary tests hold it against a running
server.
"""

TIMESTAMP_TYPE = "82"
AFTER_TIME = 18
FIRST = "2B022C010029"
"""Format version 1, an event, position 0: nearly every token."""
ZERO, LONGEST_INTEGER = 0x29, 0x32
"""Type bytes of integers: 0 is the type byte alone, then come those of integers of 1 to 8 bytes."""


def token_time(token: str) -> tuple[int, int]:
    """Seconds since the epoch and counter of a token's cluster time; a ValueError if it is not of that form."""
    if not token.startswith(TIMESTAMP_TYPE) or len(token) < AFTER_TIME:
        raise ValueError(f"not a resume token: {token[:24]!r}")
    return int(token[2:10], 16), int(token[10:AFTER_TIME], 16)


def token_position(token: str) -> int:
    """The event's position within its transaction, 0 outside of one; a ValueError if the token is not of that form.

    The events of a transaction share a cluster time, however many oplog entries the transaction takes.
    """
    if token.startswith(FIRST, AFTER_TIME):
        return 0
    version, at = _integer(token, AFTER_TIME)
    if version:
        _, at = _integer(token, at)
    return _integer(token, at)[0]


def _integer(token: str, at: int) -> tuple[int, int]:
    """The integer at an offset, and the offset behind it."""
    length, at = int(token[at : at + 2], 16) - ZERO - 1, at + 2
    if length == -1:
        return 0, at
    end = at + 2 * length
    if not 0 < length < LONGEST_INTEGER - ZERO or len(token) < end:
        raise ValueError(f"not a resume token: {token[:40]!r}")
    return int(token[at:end], 16) >> 1, end  # the lowest bit says whether a fraction follows
