"""Google's wire format: generateContent, embedContent, batchEmbedContents."""

from typing import Any

import orjson

from tests.model_server.vectors import vector_of
from tests.model_server.wire import Body, CacheRule, Chat, Embed, Problem, Reply, Response

ENDINGS = {"stop": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"}
PROBLEMS: dict[str, tuple[int, str]] = {
    "rate_limited": (429, "RESOURCE_EXHAUSTED"),
    "quota": (429, "RESOURCE_EXHAUSTED"),
    "error": (500, "INTERNAL"),
    "overloaded": (503, "UNAVAILABLE"),
    "unauthorized": (400, "INVALID_ARGUMENT"),
    "forbidden": (403, "PERMISSION_DENIED"),
    "no_model": (404, "NOT_FOUND"),
    "context_length": (400, "INVALID_ARGUMENT"),
    "bad_format": (400, "INVALID_ARGUMENT"),
    "bad_request": (400, "INVALID_ARGUMENT"),
}


def read_chat(model: str, body: Body) -> Chat:
    """A generateContent request."""
    config: Body = body.get("generationConfig") or {}
    schema = config.get("responseJsonSchema") or config.get("responseSchema")
    as_json = config.get("responseMimeType") == "application/json"
    return Chat(
        model=model,
        system=_text(body.get("systemInstruction") or {}),
        turns=tuple((_role(one), _text(one)) for one in body["contents"]),
        schema=schema,
        schema_name=None,
        schema_size=len(orjson.dumps(schema)) if schema else 0,
        form="schema" if schema else "json" if as_json else "text",
        most=config.get("maxOutputTokens"),
        bound="maxOutputTokens" if "maxOutputTokens" in config else None,
    )


def _role(content: Body) -> str:
    return "assistant" if content.get("role") == "model" else "user"


def _text(content: Body) -> str:
    return "".join(part.get("text", "") for part in content.get("parts", ()))


def read_embed(model: str, body: Body) -> Embed:
    """A batchEmbedContents or embedContent request."""
    requests: list[Any] = body.get("requests") or [body]
    texts = tuple(_text(one["content"]) for one in requests)
    return Embed(model, texts, requests[0].get("outputDimensionality"), "float", batch="requests" in body)


def cache_rule(model: str) -> CacheRule:
    """Source: "Context caching", ai.google.dev/gemini-api/docs/caching (October 2026), which names no steps."""
    return CacheRule(2_048 if "2.5" in model else 4_096, 1)


def chat_response(chat: Chat, reply: Reply) -> Response:
    """A generateContent response."""
    usage = {
        "promptTokenCount": reply.input,
        "cachedContentTokenCount": reply.cached,
        "candidatesTokenCount": reply.output - reply.reasoning,
        "thoughtsTokenCount": reply.reasoning,
        "totalTokenCount": reply.input + reply.output,
    }
    answer: Body = {
        "usageMetadata": usage,
        "modelVersion": f"{chat.model}-test",
        "responseId": str(reply.number),
    }
    if reply.ending == "blocked":
        answer["promptFeedback"] = {"blockReason": "PROHIBITED_CONTENT"}
    elif reply.ending != "none":
        parts = [{"text": reply.text}] if reply.text and reply.ending != "refusal" else []
        content = {"role": "model", "parts": parts}
        answer["candidates"] = [{"content": content, "finishReason": ENDINGS[reply.ending], "index": 0}]
    return _json(200, answer)


def embed_response(embed: Embed, dimensions: int) -> Response:
    """A batchEmbedContents or embedContent response."""
    found = [{"values": vector_of(text, dimensions).tolist()} for text in embed.texts]
    usage = {"promptTokenCount": embed.tokens, "totalTokenCount": embed.tokens}
    return _json(
        200, {**({"embeddings": found} if embed.batch else {"embedding": found[0]}), "usageMetadata": usage}
    )


def problem_response(problem: Problem) -> Response:
    """An error as Google words it."""
    status, word = PROBLEMS[problem.fault]
    error: Body = {"code": status, "message": problem.says or f"Test: {problem.fault}", "status": word}
    if problem.fault == "rate_limited":
        error["details"] = [
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{problem.retry_after:g}s"}
        ]
    if problem.fault == "unauthorized":
        error["message"] = "API key not valid. Please pass a valid API key."
        error["details"] = [
            {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
        ]
    if problem.fault == "context_length":
        error["message"] = "The input token count exceeds the maximum number of tokens allowed."
    return _json(status, {"error": error})


def _json(status: int, value: object) -> Response:
    return status, {"content-type": "application/json"}, orjson.dumps(value)
