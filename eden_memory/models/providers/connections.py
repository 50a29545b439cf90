"""The HTTP connections that the providers' SDKs share."""

import logging

import httpx2

CONNECT_SECONDS = 10.0
IDLE_SECONDS = 60.0
SPARE = 8
"""Connections beyond the calls at once, for embeddings and checks."""
MOST_IDLE = 24
"""Connections kept open without a call: the pool looks at each of them whenever a call begins or ends."""
QUIET = ("openai", "google_genai", "httpx2", "httpcore2")
"""Loggers of the SDKs; at debug level they would log prompts and answers."""


def connections(at_once: int, seconds: float) -> httpx2.AsyncClient:
    """A pool for so many calls at once; whoever makes it closes it."""
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    limits = httpx2.Limits(
        max_connections=at_once + SPARE,
        max_keepalive_connections=min(at_once + SPARE, MOST_IDLE),
        keepalive_expiry=IDLE_SECONDS,
    )
    timeout = httpx2.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds))
    return httpx2.AsyncClient(limits=limits, timeout=timeout, follow_redirects=True)
