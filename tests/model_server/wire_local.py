"""Local servers' own lists beside OpenAI's paths: Ollama's, llama.cpp's and vLLM's, as each of them answers.

Sources: the API pages of Ollama, of llama.cpp's server, and of vLLM's OpenAI-compatible server.
"""

from collections.abc import Sequence
from typing import Any

from tests.model_server.config import Config

FAMILY = {"nomic-embed-text:latest": "nomic-bert"}


def local_path(path: str, config: Config, called: Sequence[str]) -> dict[str, Any] | None:
    """What a path of a local server answers; None where it has no such path. `called`: models that are loaded."""
    models = config.models or ("test-model",)
    if config.local == "ollama" and path == "/api/tags":
        return {"models": [_tag(name, config) for name in models]}
    if config.local == "ollama" and path == "/api/ps":
        length = {"context_length": config.context_tokens, "size_vram": 0}
        return {"models": [{**_tag(name, config), **length} for name in models if name in called]}
    if config.local == "llama.cpp" and path == "/props":
        settings = {"id": 0, "n_ctx": config.context_tokens, "speculative": False}
        return {"default_generation_settings": settings, "total_slots": config.slots or 4, "model_path": "m"}
    if path == "/v1/models":
        return {"object": "list", "data": [_listed(name, config) for name in models]}
    return None


def _tag(name: str, config: Config) -> dict[str, Any]:
    details = {"format": "gguf", "family": FAMILY.get(name, "llama"), "parameter_size": "3.2B"}
    elsewhere = {"remote_host": "https://ollama.com:443"} if name.endswith("-cloud") else {}
    return {"name": name, "model": name, "size": config.sizes.get(name, 0), "details": details, **elsewhere}


def _listed(name: str, config: Config) -> dict[str, Any]:
    listed = {"id": name, "object": "model", "created": 0}
    if config.local == "vllm":
        return {**listed, "owned_by": "vllm", "root": name, "max_model_len": config.context_tokens}
    if config.local == "llama.cpp":
        return {**listed, "owned_by": "llamacpp", "meta": {"n_ctx_train": 131_072, "n_params": 1}}
    return {**listed, "owned_by": "library" if config.local == "ollama" else "test"}
