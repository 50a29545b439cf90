"""Anthropic's wire format: messages."""

from typing import Any

import orjson

from tests.model_server.wire import Body, CacheRule, Chat, Problem, Reply, Response, tokens
from tests.model_server.wire_openai import embed_response

__all__ = ["cache_rule", "chat_response", "embed_response", "problem_response", "read_message"]

ENDINGS = {"stop": "end_turn", "length": "max_tokens", "refusal": "refusal", "blocked": "refusal"}
PROBLEMS: dict[str, tuple[int, str, str | None]] = {
    "rate_limited": (429, "rate_limit_error", None),
    "quota": (429, "rate_limit_error", "enforced_spend_limit_reached"),
    "error": (500, "api_error", None),
    "overloaded": (529, "overloaded_error", None),
    "unauthorized": (401, "authentication_error", None),
    "forbidden": (403, "permission_error", None),
    "no_model": (404, "not_found_error", None),
    "context_length": (400, "invalid_request_error", None),
    "bad_format": (400, "invalid_request_error", None),
    "bad_request": (400, "invalid_request_error", None),
}


def read_message(body: Body) -> Chat:
    """A request for a message; a KeyError without a bound of the answer, which the API demands."""
    config: Body = body.get("output_config") or {}
    asked: Body = config.get("format") or {}
    schema = asked.get("schema")
    return Chat(
        most=body["max_tokens"],
        bound="max_tokens",
        model=body["model"],
        system=_text(body.get("system") or ""),
        turns=tuple((one["role"], _text(one["content"])) for one in body["messages"]),
        schema=schema,
        schema_name=None,
        schema_size=len(orjson.dumps(schema)) if schema else 0,
        tools=tuple(tool["name"] for tool in body.get("tools") or ()),
        effort=config.get("effort"),
        form="schema" if schema else "text",
    )


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def cache_rule(model: str) -> CacheRule:
    """Source: "Prompt caching", platform.claude.com/docs: 4,096 tokens for Haiku and Opus 4.5."""
    return CacheRule(4_096 if "4-5" in model and "sonnet" not in model else 1_024, 1)


def chat_response(chat: Chat, reply: Reply) -> Response:
    """A message: thoughts, as far as there are any, then one text."""
    stored = tokens(len(chat.system) + chat.schema_size)
    written = stored if not reply.cached and stored >= cache_rule(chat.model).least else 0
    content: list[Body] = []
    if reply.reasoning:
        content.append({"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"})
    if reply.text and reply.ending != "blocked":
        content.append({"type": "text", "text": reply.text})
    message: Body = {
        "id": f"msg_{reply.number}",
        "type": "message",
        "role": "assistant",
        "model": f"{chat.model}-test",
        "content": content,
        "stop_reason": ENDINGS.get(reply.ending),
        "stop_sequence": None,
        "usage": {
            "input_tokens": reply.input - reply.cached - written,
            "cache_read_input_tokens": reply.cached,
            "cache_creation_input_tokens": written,
            "output_tokens": reply.output,
            "output_tokens_details": {"thinking_tokens": reply.reasoning},
        },
    }
    if reply.ending == "none":
        del message["content"]
    return _json(200, message)


def problem_response(problem: Problem) -> Response:
    """An error as Anthropic words it."""
    status, kind, code = PROBLEMS[problem.fault]
    says = problem.says or f"Test: {problem.fault}"
    if problem.fault == "context_length":
        says = "prompt is too long: 10001 tokens > 10000 maximum"
    error: Body = {"type": kind, "message": says, **({"details": {"error_code": code}} if code else {})}
    headers = {"retry-after": f"{problem.retry_after:g}"} if problem.fault == "rate_limited" else {}
    return _json(status, {"type": "error", "error": error, "request_id": "req_1"}, headers)


def _json(status: int, value: object, headers: dict[str, str] | None = None) -> Response:
    return status, {"content-type": "application/json", **(headers or {})}, orjson.dumps(value)
