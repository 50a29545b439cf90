"""Keys of providers: from the environment only, never from settings, never shown."""

import os
import re
from collections.abc import Mapping, Sequence

from eden_memory.errors import EdenError

VARIABLES: Mapping[str, Sequence[str]] = {
    "openai": ("OPENAI_API_KEY",),
    "google": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
}
"""Where each provider's own tools look, the first one first."""


def key_of(provider: str) -> str:
    """The key of `openai` or `google`; EdenError where there is none."""
    found = key_in(*VARIABLES[provider])
    if found is None:
        names = " or ".join(VARIABLES[provider])
        raise EdenError(f"{provider} was asked for, but there is no key for it", f"Set {names}.")
    return found


def endpoint_variable(general: str, name: str) -> str:
    """Where the key of one endpoint is: `EDEN_API_KEY` and `api.example.org` make EDEN_API_KEY_API_EXAMPLE_ORG."""
    return f"{general}_{re.sub(r'[^A-Za-z0-9]', '_', name).upper()}"


def key_in(*variables: str) -> str | None:
    """The first of these variables that holds something."""
    return next((value for name in variables if (value := os.environ.get(name, "").strip())), None)


def unused_keys(asked_for: Sequence[str]) -> list[tuple[str, str]]:
    """(provider, variable) of keys that are there for providers that nobody asked for."""
    return [
        (provider, name)
        for provider, names in VARIABLES.items()
        for name in names
        if provider not in asked_for and key_in(name) is not None
    ]
