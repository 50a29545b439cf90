"""Model servers on this machine (Ollama, llama.cpp, vLLM): what they hold, and the settings that fit them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import httpx2

from eden_memory.errors import EdenError
from eden_memory.models.catalogue import (
    ModelChoice,
    endpoint_variable,
    how_to_name,
    is_url,
    key_in,
    provider_name,
    used_for,
)
from eden_memory.models.provider_calls import Body, count_of, object_of, objects_of, text_of
from eden_memory.settings import API_KEY, Settings

PLACES: Mapping[str, str] = {
    "Ollama": "http://127.0.0.1:11434/v1",
    "llama.cpp": "http://127.0.0.1:8080/v1",
    "vLLM": "http://127.0.0.1:8000/v1",
}
"""Where each of them listens by default."""

LOOK_SECONDS = 3.0

NO_CHAT = ("embed", "rerank", "minilm", "bge-", "bert", "whisper", "clip")
"""Parts of the names of models that answer no questions."""

MOST_NAMED = 12
"""Models that an error lists."""

LARGEST = 10 * 10**9
"""Bytes of the largest model that is chosen without being named: larger ones need a large machine."""


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model that a server offers."""

    name: str
    size: int | None = None
    """Bytes, where the server tells."""
    loaded: bool = True


@dataclass(frozen=True, slots=True)
class LocalModelServer:
    """A server that was found, as its lists describe it."""

    kind: str
    url: str
    """Base URL, as EDEN_LLM takes it."""
    models: tuple[ListedModel, ...]
    slots: int | None = None
    """Answers that it makes at once; None: it does not say."""
    context: int | None = None
    """Tokens of a prompt and its answer; None: it does not say, or not before a model is loaded."""


def found_server(own: str | None = None, places: Sequence[str] = tuple(PLACES.values())) -> LocalModelServer:
    """The first server with a model, `own` (a base URL) before the usual places; EdenError if there is none."""
    asked = (own,) if own is not None else places
    servers = [server for url in asked if (server := look(url)) is not None]
    for server in servers:
        if server.models:
            return server
    if servers:
        raise EdenError(
            f"{servers[0].kind} at {provider_name(servers[0].url)} has no model that answers questions",
            "Load one, for example `ollama pull qwen3:8b`, and start again.",
        )
    where = ", ".join(provider_name(url) for url in asked)
    raise EdenError(
        f"no model server answers at {where}",
        "Start Ollama, llama-server or vLLM, or name the address: EDEN_LLM=http://127.0.0.1:PORT/v1.",
    )


def with_only_model(settings: Settings) -> Settings:
    """Return settings that name the only chat model of EDEN_LLM's endpoint, where a role has none.

    EdenError with the names where there are several, or where the endpoint lists none.
    """
    if not is_url(settings.llm) or ModelChoice(settings.llm, None) not in used_for(settings):
        return settings
    server = look(settings.llm)
    names = [model.name for model in server.models] if server else []
    if len(names) == 1:
        models = settings.models.model_copy(update={"fast": names[0]})
        return settings.model_copy(update={"models": models})
    where, hint = provider_name(settings.llm), how_to_name("facts", 0)
    if not names:
        raise EdenError(f"no model is named, and {where} does not say which it has", hint)
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    raise EdenError(f"no model is named, and {where} has {', '.join(names[:MOST_NAMED])}{more}", hint)


def look(url: str) -> LocalModelServer | None:
    """Return the server at a base URL; None if no model server answers there."""
    key = key_in(endpoint_variable(provider_name(url)), API_KEY)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    with httpx2.Client(timeout=LOOK_SECONDS, headers=headers, trust_env=False) as client:
        listed = _json(client, f"{url.rstrip('/')}/models")
        if not isinstance(listed.get("data"), list):
            return None
        root, rows = _root(url), objects_of(listed["data"])
        if tags := objects_of(_json(client, f"{root}/api/tags").get("models")):
            return LocalModelServer("Ollama", url, tuple(_of_ollama(tags, _loaded(client, root))))
        names = [text_of(row.get("id")) for row in rows]
        models = tuple(ListedModel(name) for name in names if name and _chats(name))
        if any(row.get("owned_by") == "llamacpp" for row in rows):
            return _of_llama_cpp(url, models, _json(client, f"{root}/props"))
    context = max((count_of(row.get("max_model_len")) for row in rows), default=0)
    return LocalModelServer("vLLM" if context else "a model server", url, models, None, context or None)


def loaded_context(server: LocalModelServer, model: str) -> int | None:
    """Return the tokens that a model accepts, once it is loaded; Ollama does not say earlier."""
    if server.kind != "Ollama":
        return server.context
    with httpx2.Client(timeout=LOOK_SECONDS, trust_env=False) as client:
        row = _loaded(client, _root(server.url)).get(model, {})
    return count_of(row.get("context_length")) or None


def sensible_model(server: LocalModelServer, wanted: str | None = None) -> str:
    """Return `wanted` if it exists; else a loaded one, the largest of moderate size, or the smallest of all."""
    names = [model.name for model in server.models]
    if wanted is not None:
        if wanted in names:
            return wanted
        have = ", ".join(names)
        raise EdenError(
            f"{server.kind} at {provider_name(server.url)} has no model {wanted}",
            f"EDEN_MODELS_FAST may name one of these: {have}.",
        )
    for model in server.models:
        if model.loaded:
            return model.name
    moderate = [model for model in server.models if (model.size or 0) <= LARGEST]
    if moderate:
        return max(moderate, key=lambda listed_model: listed_model.size or 0).name
    return min(server.models, key=lambda model: model.size or 0).name


def _root(url: str) -> str:
    """Where a server's own paths are, beside OpenAI's."""
    return url.rstrip("/").removesuffix("/v1")


def _of_ollama(tags: Sequence[Body], loaded: Mapping[str, Body]) -> Iterator[ListedModel]:
    """Its models; those that it only passes on to a service elsewhere are left out."""
    for row in tags:
        name = text_of(row.get("name"))
        elsewhere = row.get("remote_host") or name.endswith("-cloud")
        if (
            name
            and not elsewhere
            and _chats(f"{name} {text_of(object_of(row.get('details')).get('family'))}")
        ):
            yield ListedModel(name, count_of(row.get("size")), name in loaded)


def _of_llama_cpp(url: str, models: tuple[ListedModel, ...], props: Body) -> LocalModelServer:
    context = count_of(object_of(props.get("default_generation_settings")).get("n_ctx"))
    return LocalModelServer(
        "llama.cpp", url, models, count_of(props.get("total_slots")) or None, context or None
    )


def _loaded(client: httpx2.Client, root: str) -> Mapping[str, Body]:
    """Ollama's loaded models, by name."""
    rows = objects_of(_json(client, f"{root}/api/ps").get("models"))
    return {text_of(row.get("name")): row for row in rows}


def _chats(description: str) -> bool:
    lower = description.lower()
    return not any(word in lower for word in NO_CHAT)


def _json(client: httpx2.Client, url: str) -> Body:
    """The JSON object that a path answers, else an empty one."""
    try:
        response = client.get(url)
        return object_of(response.json()) if response.is_success else {}
    except (httpx2.HTTPError, ValueError):
        return {}


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
