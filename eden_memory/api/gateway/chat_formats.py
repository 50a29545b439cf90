"""The chat APIs that the gateway speaks: what a request says, where memory goes in, what an answer says. Pure."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import orjson

from eden_memory.mongo.document_fields import Unusable, text_of

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder(strict=False)


@dataclass(frozen=True, slots=True)
class JsonSpan:
    """A value, and the position of its text."""

    value: Any
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class JsonMember:
    """A member of an object; `start` is where its name starts, `value_at` where its value does, `items` are those of
    an array.
    """

    name: str
    value: Any
    start: int
    value_at: int
    end: int
    items: tuple[JsonSpan, ...] = ()


def members_of(text: str, array: str) -> list[JsonMember]:
    """Return the members of a JSON object in order, with the items of the member named `array`.

    A ValueError if the text is no JSON object.
    """
    at = _expect(text, _space(text, 0), "{")
    members: list[JsonMember] = []
    if text[at : at + 1] == "}":
        return _ended(text, at + 1, members)
    while True:
        name, start, end = _value(text, at)
        if not isinstance(name, str):
            raise ValueError("a member has no name")
        at = _expect(text, _space(text, end), ":")
        member = _member(text, name, start, at, array)
        members.append(member)
        at = _space(text, member.end)
        if text[at : at + 1] == "}":
            return _ended(text, at + 1, members)
        at = _expect(text, at, ",")


def with_items(text: str, member: JsonMember, added: Iterable[tuple[int, str]]) -> str:
    """Return the text of an array member with further items before the given places."""
    before: dict[int, list[str]] = {}
    for place, item in added:
        before.setdefault(place, []).append(item)
    items: list[str] = []
    for place, item in enumerate(member.items):
        items += [*before.get(place, ()), text[item.start : item.end]]
    items += before.get(len(member.items), ())
    return f"{json.dumps(member.name)}:[{','.join(items)}]"


def _member(text: str, name: str, start: int, at: int, array: str) -> JsonMember:
    if name == array and text[at : at + 1] == "[":
        items, end = _items(text, at)
        return JsonMember(name, [item.value for item in items], start, at, end, tuple(items))
    value, _, end = _value(text, at)
    return JsonMember(name, value, start, at, end)


def _items(text: str, at: int) -> tuple[list[JsonSpan], int]:
    at = _expect(text, at, "[")
    items: list[JsonSpan] = []
    if text[at : at + 1] == "]":
        return items, at + 1
    while True:
        value, start, end = _value(text, at)
        items.append(JsonSpan(value, start, end))
        at = _space(text, end)
        if text[at : at + 1] == "]":
            return items, at + 1
        at = _expect(text, at, ",")


def _value(text: str, at: int) -> tuple[Any, int, int]:
    """Return a value, its start and its end."""
    try:
        value, end = _DECODER.raw_decode(text, at)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value, at, end


def _expect(text: str, at: int, mark: str) -> int:
    """Return the position behind the mark and white space."""
    if text[at : at + 1] != mark:
        raise ValueError(f"{mark} expected at character {at}")
    return _space(text, at + 1)


def _space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _ended(text: str, at: int, members: list[JsonMember]) -> list[JsonMember]:
    if _space(text, at) != len(text):
        raise ValueError(f"more behind the object, at character {at}")
    return members


Object = dict[str, Any]
Members = Mapping[str, JsonMember]
INSTRUCTIONS = frozenset({"system", "developer"})
RESULTS = ("function_call_output", "custom_tool_call_output")
"""Items of the Responses API that are a tool's result."""
CALLS = ("function_call", "custom_tool_call")


class ChatFormat(ABC):
    """One API."""

    path: str
    """Its path, behind `/v1` here and behind the base URL at the provider."""
    array: str
    """The member of a request whose items keep their bytes when memory joins them; "": none."""
    marks: bytes
    """Bytes that stand in every event that says something."""

    def user(self, fields: Object) -> Any:
        """Return the user that a request names in the API's own field."""
        return fields.get("user")

    def anchor(self, fields: Object) -> str | None:
        """Return what names the conversation before the request's messages, where the provider keeps it."""
        del fields
        return None

    @abstractmethod
    def messages(self, fields: Object) -> list[Any]:
        """Return what a request says, as messages of chat completions."""

    @abstractmethod
    def with_memory(self, text: str, members: Members, stable: str, changing: str) -> dict[str, str]:
        """Return the members that a request has with memory in it, as JSON with their names."""

    @abstractmethod
    def said(self, event: Object) -> tuple[str, str]:
        """Return the part of the answer that an event of a stream belongs to, and its text; "": it says nothing."""

    @abstractmethod
    def answer(self, body: Object) -> Any:
        """Return the content of a whole response: text, or its parts."""

    def echoed(self, *, streamed: bool) -> Sequence[str] | None:
        """Return where a response repeats the member that memory has joined; None: nowhere."""
        del streamed
        return None


class ChatCompletions(ChatFormat):
    """OpenAI's chat completions: memory in messages of its own.

    `stable` stands behind the instructions that open the conversation, `changing` before the last user turn, so that
    what a provider caches of a prompt (its beginning) stays the same from turn to turn.
    """

    path, array, marks = "/chat/completions", "messages", b'"content"'

    def messages(self, fields: Object) -> list[Any]:
        """Return the messages as received."""
        return _list(fields.get("messages"))

    def with_memory(self, text: str, members: Members, stable: str, changing: str) -> dict[str, str]:
        """Return `messages` with up to two more."""
        member = members.get("messages")
        if member is None or not member.items:
            return {}
        roles = [role_of(item.value) for item in member.items]
        behind = next((n for n, name in enumerate(roles) if name not in INSTRUCTIONS), len(roles))
        last_user = max((n for n, name in enumerate(roles) if name == "user"), default=behind)
        added = [
            (place, json.dumps({"role": "system", "content": memory}, ensure_ascii=False))
            for place, memory in ((behind, stable), (last_user, changing))
            if memory
        ]
        return {"messages": with_items(text, member, added)}

    def said(self, event: Object) -> tuple[str, str]:
        """Read the first choice."""
        return "", _spoken(_first_choice(event)["delta"].get("content"))

    def answer(self, body: Object) -> Any:
        """Read the first choice."""
        return _first_choice(body)["message"].get("content")


class OpenAIResponses(ChatFormat):
    """OpenAI's responses: memory in `instructions`, which the provider keeps for no later response.

    It repeats them in its answer, where the caller's own are put back.
    """

    path, array, marks = "/responses", "", b"response.output_text.delta"

    def anchor(self, fields: Object) -> str | None:
        """Return the previous response."""
        previous = fields.get("previous_response_id")
        return f"response:{previous}" if isinstance(previous, str) else None

    def messages(self, fields: Object) -> list[Any]:
        """Read the items; what the model says, thinks and calls in a row is one message."""
        said, given = _list(None), fields.get("input")
        if isinstance(instructions := fields.get("instructions"), str):
            said.append({"role": "system", "content": instructions})
        for item in _objects([{"role": "user", "content": given}] if isinstance(given, str) else given):
            kind = item.get("type", "message")
            if kind == "message":
                turn = {"role": item.get("role"), "content": item.get("content")}
            elif kind in CALLS:
                turn = {"role": "assistant", "content": ""}
            elif kind in RESULTS:
                turn = {"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")}
            else:
                continue
            if turn["role"] == "assistant" and said and role_of(said[-1]) == "assistant":
                said[-1] = {"role": "assistant", "content": [*_parts(said[-1]), *_parts(turn)]}
            else:
                said.append(turn)
        return said

    def with_memory(self, text: str, members: Members, stable: str, changing: str) -> dict[str, str]:
        """Return `instructions` with memory behind them."""
        del text
        own = members.get("instructions")
        if "input" not in members or (own is not None and not isinstance(own.value, str | None)):
            return {}
        joined = "\n\n".join(filter(None, (own and own.value, stable, changing)))
        return {"instructions": f'"instructions":{json.dumps(joined)}'}

    def said(self, event: Object) -> tuple[str, str]:
        """Read a piece of an output text."""
        if event.get("type") != "response.output_text.delta":
            return "", ""
        return f"{event.get('output_index')}.{event.get('content_index')}", _spoken(event.get("delta"))

    def answer(self, body: Object) -> Any:
        """Return the parts of all messages."""
        return [
            part
            for item in _objects(body.get("output"))
            if item.get("type") == "message"
            for part in _list(item.get("content"))
        ]

    def echoed(self, *, streamed: bool) -> Sequence[str] | None:
        """Return the path of `instructions`."""
        return ("response", "instructions") if streamed else ("instructions",)


class AnthropicMessages(ChatFormat):
    """Anthropic's messages: memory in `system`, behind the caller's own blocks, whose cache marks stay good.

    The user is `metadata.user_id`.
    """

    path, array, marks = "/messages", "system", b'"text_delta"'

    def user(self, fields: Object) -> Any:
        """Return `metadata.user_id`."""
        metadata = fields.get("metadata")
        return cast(Object, metadata).get("user_id") if isinstance(metadata, dict) else None

    def messages(self, fields: Object) -> list[Any]:
        """Read the blocks; each result of a tool is a message of its own."""
        said = _list(None)
        if fields.get("system"):
            said.append({"role": "system", "content": fields["system"]})
        for message in _objects(fields.get("messages")):
            content = message.get("content")
            results = [block for block in _objects(content) if block.get("type") == "tool_result"]
            for block in results:
                call = block.get("tool_use_id")
                said.append({"role": "tool", "tool_call_id": call, "content": block.get("content")})
            rest = [block for block in _list(content) if block not in results] if results else content
            if rest or not results:
                said.append({"role": message.get("role"), "content": rest})
        return said

    def with_memory(self, text: str, members: Members, stable: str, changing: str) -> dict[str, str]:
        """Return `system` with up to two more blocks."""
        own = members.get("system")
        if "messages" not in members:
            return {}
        if (
            own is not None
            and own.value not in (None, [])
            and not own.items
            and not isinstance(own.value, str)
        ):
            return {}
        added = [_text_block(memory) for memory in (stable, changing) if memory]
        if own is not None and own.items:
            return {"system": with_items(text, own, [(len(own.items), block) for block in added])}
        if own is not None and isinstance(own.value, str) and own.value:
            added = [_text_block(own.value), *added]
        return {"system": f'"system":[{",".join(added)}]'}

    def said(self, event: Object) -> tuple[str, str]:
        """Read a piece of a text block."""
        delta = event["delta"]
        text = delta.get("text") if delta.get("type") == "text_delta" else ""
        return f"{event.get('index')}", _spoken(text)

    def answer(self, body: Object) -> Any:
        """Return the blocks: thoughts and calls are no text."""
        return body.get("content")


CHAT_COMPLETIONS, RESPONSES, MESSAGES = ChatCompletions(), OpenAIResponses(), AnthropicMessages()
FORMATS: tuple[ChatFormat, ...] = (CHAT_COMPLETIONS, RESPONSES, MESSAGES)


def role_of(message: Any) -> str | None:
    """Return the role that a message names."""
    role = cast(Object, message).get("role") if isinstance(message, dict) else None
    return role if isinstance(role, str) else None


def answer_of(spoken: ChatFormat, body: bytes) -> str:
    """Return the text of a whole response; "" if there is none."""
    try:
        return text_of(spoken.answer(orjson.loads(body)))
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration, Unusable):
        return ""


def said_in(spoken: ChatFormat, event: bytes) -> tuple[str, str]:
    """Return what an event's JSON says, as ChatFormat.said does; "" where it cannot be read."""
    try:
        return spoken.said(orjson.loads(event))
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration, Unusable):
        return "", ""


def with_value(text: str, path: Sequence[str], value: str) -> str:
    """Return a JSON object with another value (JSON, too) at a path; unchanged where nothing stands there."""
    start, end = 0, len(text)
    for name in path:
        try:
            found = [member for member in members_of(text[start:end], "") if member.name == name]
        except ValueError:
            return text
        if not found:
            return text
        start, end = start + found[-1].value_at, start + found[-1].end
    return text[:start] + value + text[end:]


def _first_choice(body: Object) -> Object:
    return next(choice for choice in body["choices"] if choice.get("index", 0) == 0)


def _spoken(content: Any) -> str:
    """Return the text of a piece of an answer, of which white space is a part."""
    return content if isinstance(content, str) else text_of(content)


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _objects(value: Any) -> list[Object]:
    return [cast(Object, item) for item in _list(value) if isinstance(item, dict)]


def _parts(message: Object) -> Iterable[Any]:
    content = message.get("content")
    return _list(content) if isinstance(content, list) else [content or ""]


def _text_block(text: str) -> str:
    return json.dumps({"type": "text", "text": text})
