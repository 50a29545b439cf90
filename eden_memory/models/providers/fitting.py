"""Settings that fit a model server: its slots, the speed of a model, and the tokens that it takes at once."""

from collections.abc import Mapping

from eden_memory.models.providers.local_servers import LocalModelServer

ANSWER = 1_000
"""Tokens of a long answer in formation; a call has twice the time that these take."""
LEAST_SECONDS, MOST_SECONDS = 120.0, 600.0
ROOMY = 12_288
"""Tokens that take a whole window, its prompt and the longest answer."""
FIXED = 3_072
"""Tokens of them that do not shrink: instructions, and room for a model that thinks."""


def fitting(server: LocalModelServer, speed: float | None, context: int | None) -> Mapping[str, str]:
    """Return environment variables; `speed` in tokens a second, None where a value is not known."""
    slots = {"vLLM": 2, "Ollama": 1}.get(server.kind, server.slots or 1)
    seconds = LEAST_SECONDS if speed is None else min(MOST_SECONDS, max(LEAST_SECONDS, 2 * ANSWER / speed))
    return {
        "EDEN_MODELS_AT_ONCE": str(min(2, slots)),
        "EDEN_MODELS_TIMEOUT_SECONDS": f"{seconds:.0f}",
        **_sizes(context),
    }


def _sizes(context: int | None) -> Mapping[str, str]:
    """Return settings for smaller windows and answers if the server takes few tokens."""
    if context is None or context >= ROOMY:
        return {}
    share = max(0.0, (context - FIXED) / (ROOMY - FIXED))
    return {
        "EDEN_WINDOWS_TOKENS": f"{max(400, 1_500 * share):.0f}",
        "EDEN_LIMITS_FACTS": f"{max(5, int(30 * share))}",
        "EDEN_LIMITS_AGENT_BLOB_WORDS": f"{max(200, 1_200 * share):.0f}",
    }
