"""OpenAI's Responses format: the same chats and answers under other names. Errors are those of `wire_openai`."""

from typing import Any

import orjson

from tests.model_server.wire import Body, Chat, Reply, Response
from tests.model_server.wire_openai import cache_rule, embed_response, problem_response, read_chat

__all__ = ["cache_rule", "chat_response", "embed_response", "problem_response", "read_response"]


def read_response(body: Body) -> Chat:
    """A request for a response; its `input` must be messages."""
    text: Body = body.get("text") or {}
    asked: Body = text.get("format") or {}
    named: Body = {"name": asked.get("name"), "schema": asked.get("schema")}
    chat: Body = {
        "model": body["model"],
        "messages": body["input"],
        "response_format": {"type": asked.get("type", "text"), "json_schema": named},
    }
    if body.get("max_output_tokens") is not None:
        chat["max_completion_tokens"] = body["max_output_tokens"]
    return read_chat(chat)


def chat_response(chat: Chat, reply: Reply) -> Response:
    """A response with one message of one text, or of one refusal."""
    part: Body = {"type": "output_text", "text": reply.text, "annotations": []}
    if reply.ending == "refusal":
        part = {"type": "refusal", "refusal": reply.text}
    said = [] if reply.ending == "none" else [_message(reply.number, part)]
    usage = {
        "input_tokens": reply.input,
        "input_tokens_details": {"cached_tokens": reply.cached},
        "output_tokens": reply.output,
        "output_tokens_details": {"reasoning_tokens": reply.reasoning},
        "total_tokens": reply.input + reply.output,
    }
    cut = reply.ending == "length"
    content: Body = {
        "id": f"resp_{reply.number}",
        "object": "response",
        "created_at": 0,
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "model": f"{chat.model}-test",
        "output": said,
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage,
    }
    return 200, {"content-type": "application/json"}, orjson.dumps(content)


def _message(number: int, part: Any) -> Body:
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
