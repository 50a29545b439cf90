"""OpenAI's wire format: chat completions, embeddings, models."""

import base64
from typing import Any

import orjson

from tests.model_server.vectors import vector_of
from tests.model_server.wire import Body, Chat, Embed, Problem, Reply, Response

ENDINGS = {"stop": "stop", "refusal": "stop", "length": "length", "blocked": "content_filter"}
PROBLEMS: dict[str, tuple[int, str, str | None]] = {
    "rate_limited": (429, "rate_limit_exceeded", None),
    "quota": (429, "insufficient_quota", None),
    "error": (500, "server_error", None),
    "overloaded": (503, "overloaded", None),
    "unauthorized": (401, "invalid_api_key", None),
    "forbidden": (403, "unsupported_country_region_territory", None),
    "no_model": (404, "model_not_found", "model"),
    "context_length": (400, "context_length_exceeded", "messages"),
    "bad_format": (400, "invalid_request_error", "response_format"),
    "bad_request": (400, "invalid_request_error", None),
}


def read_chat(body: Body) -> Chat:
    """A chat completion request."""
    asked: Body = body.get("response_format") or {}
    named: Body = asked.get("json_schema") or {}
    schema = named.get("schema")
    messages: list[Body] = body["messages"]
    bound = next((name for name in ("max_tokens", "max_completion_tokens") if name in body), None)
    return Chat(
        most=body[bound] if bound else None,
        bound=bound,
        model=body["model"],
        system="\n".join(_text(one) for one in messages if one["role"] in ("system", "developer")),
        turns=tuple((one["role"], _text(one)) for one in messages if one["role"] in ("user", "assistant")),
        schema=schema,
        schema_name=named.get("name"),
        schema_size=len(orjson.dumps(schema)) if schema else 0,
        tools=tuple(tool["function"]["name"] for tool in body.get("tools") or ()),
        effort=body.get("reasoning_effort"),
        form={"json_schema": "schema", "json_object": "json"}.get(asked.get("type", ""), "text"),  # pyright: ignore[reportArgumentType]
    )


def _text(message: Body) -> str:
    content: Any = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def read_embed(body: Body) -> Embed:
    """An embeddings request."""
    given = body["input"]
    texts = (given,) if isinstance(given, str) else tuple(given)
    form = "base64" if body.get("encoding_format") == "base64" else "float"
    return Embed(body["model"], texts, body.get("dimensions"), form)


def chat_response(chat: Chat, reply: Reply) -> Response:
    """A chat completion."""
    message: Body = {"role": "assistant", "content": reply.text, "refusal": None}
    if reply.ending == "refusal":
        message |= {"content": None, "refusal": reply.text}
    if reply.call is not None:
        function = {"name": reply.call, "arguments": "{}"}
        call = {"id": f"call-{reply.number}", "type": "function", "function": function}
        message |= {"content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": ENDINGS.get(reply.ending), "logprobs": None}
    usage = {
        "prompt_tokens": reply.input,
        "completion_tokens": reply.output,
        "total_tokens": reply.input + reply.output,
        "prompt_tokens_details": {"cached_tokens": reply.cached},
        "completion_tokens_details": {"reasoning_tokens": reply.reasoning},
    }
    return _json(
        200,
        {
            "id": f"chatcmpl-{reply.number}",
            "object": "chat.completion",
            "created": 0,
            "model": f"{chat.model}-test",
            "choices": [] if reply.ending == "none" else [choice],
            "usage": usage,
        },
    )


def embed_response(embed: Embed, dimensions: int) -> Response:
    """Embeddings."""
    data = [
        {"object": "embedding", "index": place, "embedding": _numbers(embed, text, dimensions)}
        for place, text in enumerate(embed.texts)
    ]
    usage = {"prompt_tokens": embed.tokens, "total_tokens": embed.tokens}
    return _json(200, {"object": "list", "data": data, "model": embed.model, "usage": usage})


def _numbers(embed: Embed, text: str, dimensions: int) -> object:
    vector = vector_of(text, dimensions)
    return base64.b64encode(vector.tobytes()).decode() if embed.form == "base64" else vector.tolist()


def problem_response(problem: Problem) -> Response:
    """An error as OpenAI words it."""
    status, code, param = PROBLEMS[problem.fault]
    headers = {"retry-after": f"{problem.retry_after:g}"} if problem.fault == "rate_limited" else {}
    says = "Incorrect API key provided: sk-sec***ret." if status == 401 else f"Test: {code}"
    error = {"message": problem.says or says, "type": code, "param": problem.param or param, "code": code}
    return _json(status, {"error": error}, headers)


def _json(status: int, value: object, headers: dict[str, str] | None = None) -> Response:
    return status, {"content-type": "application/json", **(headers or {})}, orjson.dumps(value)
