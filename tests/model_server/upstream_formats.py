"""What the tests' chat provider answers over OpenAI's responses and Anthropic's messages: a whole body, or events."""

from collections.abc import Iterator
from itertools import count
from typing import Any

Body = dict[str, Any]
THOUGHT: Body = {"type": "thinking", "thinking": "Let me see.", "signature": "c2lnbmVk"}


def answered(
    path: str, body: Body, texts: list[str], number: int, call: Body | None
) -> tuple[Body, Iterator[Body]]:
    """Return a whole body, and its events."""
    if path == "/v1/responses":
        return response_of(body, texts, number, call), response_events(body, texts, number, call)
    return message_of(texts, number, call), message_events(texts, number, call)


def response_of(body: Body, texts: list[str], number: int, call: Body | None) -> Body:
    """A response; it repeats the instructions, as OpenAI does."""
    part: Body = {"type": "output_text", "text": "".join(texts), "annotations": []}
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    calls = [{"id": "fc_1", "type": "function_call", "status": "completed", **call}] if call else []
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "m-1",
        "instructions": body.get("instructions"),
        "previous_response_id": body.get("previous_response_id"),
        "output": [*([message] if texts else []), *calls],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": body.get("tools", []),
    }


def response_events(body: Body, texts: list[str], number: int, call: Body | None) -> Iterator[Body]:
    """The events of a streamed response, one text delta for each text."""
    whole = response_of(body, texts, number, call)
    numbers = count()
    begun: Body = {**whole, "status": "in_progress", "output": []}
    for kind in ("response.created", "response.in_progress"):
        yield {"type": kind, "sequence_number": next(numbers), "response": begun}
    for place, item in enumerate(whole["output"]):
        at: Body = {"output_index": place}
        empty: Body = {**item, "content": []} if item["type"] == "message" else item
        yield {"type": "response.output_item.added", "sequence_number": next(numbers), **at, "item": empty}
        if item["type"] == "message":
            at |= {"item_id": item["id"], "content_index": 0}
            part: Body = {"type": "output_text", "text": "", "annotations": []}
            yield {
                "type": "response.content_part.added",
                "sequence_number": next(numbers),
                **at,
                "part": part,
            }
            for text in texts:
                said: Body = {
                    "type": "response.output_text.delta",
                    "sequence_number": next(numbers),
                    "logprobs": [],
                }
                yield {**said, **at, "delta": text}
        yield {
            "type": "response.output_item.done",
            "sequence_number": next(numbers),
            "output_index": place,
            "item": item,
        }
    yield {"type": "response.completed", "sequence_number": next(numbers), "response": whole}


def message_of(texts: list[str], number: int, call: Body | None) -> Body:
    """A message that thinks first."""
    blocks: list[Body] = [THOUGHT, *([{"type": "text", "text": "".join(texts)}] if texts else [])]
    if call:
        blocks.append({"type": "tool_use", "id": call["call_id"], "name": call["name"], "input": {}})
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "m-1",
        "content": blocks,
        "stop_reason": "tool_use" if call else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 2},
    }


def message_events(texts: list[str], number: int, call: Body | None) -> Iterator[Body]:
    """The events of a streamed message, one text delta for each text."""
    whole = message_of(texts, number, call)
    begun: Body = {**whole, "content": [], "stop_reason": None}
    yield {"type": "message_start", "message": begun}
    for place, block in enumerate(whole["content"]):
        empty: dict[str, Body] = {
            "thinking": {"thinking": "", "signature": ""},
            "text": {"text": ""},
            "tool_use": {"input": {}},
        }
        at: Body = {"index": place}
        yield {"type": "content_block_start", **at, "content_block": block | empty[block["type"]]}
        deltas: dict[str, list[Body]] = {
            "thinking": [
                {"type": "thinking_delta", "thinking": THOUGHT["thinking"]},
                {"type": "signature_delta", "signature": THOUGHT["signature"]},
            ],
            "text": [{"type": "text_delta", "text": text} for text in texts],
            "tool_use": [{"type": "input_json_delta", "partial_json": "{}"}],
        }
        for delta in deltas[block["type"]]:
            yield {"type": "content_block_delta", **at, "delta": delta}
        yield {"type": "content_block_stop", **at}
    ending = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": ending, "usage": {"output_tokens": 2}}
    yield {"type": "message_stop"}
