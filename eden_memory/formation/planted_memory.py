"""Rules against planted memory: whose words others may come to see, and texts that give an agent orders. Pure.

The patterns follow published attacks: MINJA (a user's queries make an agent remember to take one thing for another),
indirect injection (orders in a tool's output), and spoofed instructions that write to an assistant's memory. What
looks planted stays with its author; what only a tool says is dropped. They know English alone; the setting by role
knows no language. What an operator adds without a user is trusted.
"""

import re
from collections.abc import Iterator, Mapping, Set
from typing import NamedTuple

from eden_memory.formation.prompt_material import TranscriptLine
from eden_memory.formation.shareable import adds_little
from eden_memory.formation.transcript import Transcript
from eden_memory.schemas.provenance import SourceMessage

_GAP = r"[^.!?\n]{0,80}?"
_RULES = r"(?:instructions?|rules?|prompts?|guidelines?|polic(?:y|ies)|directives?)"
_WHOSE = r"(?:your|the|its|my|long[- ]term|(?:the )?agent'?s?|system|permanent|persistent)"
_OTHERS = r"(?:users?|customers?|clients?|patients?|anyone|anybody|everyone|everybody|someone|somebody)"
_TALKS = r"(?:sessions?|conversations?|chats?|queries|requests?)"
_BY_USERS = (
    rf"\b(?:ignore|disregard|override|bypass|forget)\b{_GAP}"
    rf"\b(?:previous|prior|above|earlier|your|system)\b{_GAP}\b{_RULES}\b",
    rf"\b(?:save|store|write|add|put|persist|commit|append|insert|update|overwrite)\b{_GAP}"
    rf"\b{_WHOSE}\s+(?:\w+[- ]){{0,2}}(?:memory|memories|knowledge base)\b",
    rf"\b(?:memori[sz]e|remember|note|keep in mind)\b{_GAP}\b(?:for|in|with|across|to)\s+"
    rf"(?:all|every|each|any|other)\s+(?:future\s+|other\s+)?(?:{_OTHERS}|{_TALKS})\b",
    r"\b(?:refer(?:red|s)?|redirect(?:ed|s)?|replaced?|substituted?|swap(?:ped)?|quer(?:y|ied)|retrieved?)"
    rf"\b{_GAP}\b(?:instead(?: of)?|in place of|rather than|in lieu of|with that of)\b",
    rf"\b(?:data|records?|information|file|entry|entries|account)\b{_GAP}\b(?:of|for)\b{_GAP}"
    r"\b(?:is|are|was|were)\s+(?:now\s+)?(?:saved|stored|kept|moved|listed|held)\s+(?:under|with|as)\b",
    r"\b(?:do not|don'?t|never|without)\s+(?:tell|mention|inform|reveal|alert|disclos)(?:e|ing|ling)?\b"
    rf"{_GAP}\b(?:the|any|other)\s+{_OTHERS}\b",
)
_SPOOFED = (
    r"^\W{0,4}(?:system|developer|admin(?:istrator)?)\s+"
    r"(?:message|prompt|note|override|update|instructions?|notice)\W{0,3}:",
    r"<\s*/?\s*(?:system|instructions?|im_start|im_end)\b|\[/?INST\]|<\|(?:im_start|im_end|system)\|>",
    r"\b(?:important|new|hidden|special|critical|updated)\s+(?:system\s+)?instructions?\s+(?:for|to)\s+"
    r"(?:the\s+|any\s+|all\s+)?(?:ai|assistants?|agents?|models?|llms?|bots?)\b",
)
_BY_TOOLS = (
    rf"\b(?:ignore|disregard|override|bypass)\b{_GAP}\b{_RULES}\b",
    rf"\b(?:when(?:ever)?|if|every time|any time|each time|once)\b{_GAP}\b(?:the\s+)?{_OTHERS}\b{_GAP}"
    r"\b(?:asks?|requests?|wants?|mentions?|says?)\b",
    rf"\b(?:from now on|going forward|in all future|always|in (?:any|every) (?:answer|reply))\b{_GAP}"
    r"\b(?:use|recommend|answer|respond|reply|send|refer|return|say|suggest|select|include|prefer|trust)\b",
    r"\b(?:ai|assistants?|agents?|bots?|language models?|you)\s+(?:must|shall|should|are to|need to)\b",
    rf"\b(?:send|forward|post|upload|transmit|append|include)\b{_GAP}"
    rf"\b(?:conversation|chat|history|messages|passwords?|credentials?|tokens?|data|details)\b{_GAP}"
    r"(?:https?://|\bto\s+\S+@)",
    r"\b(?:remember|memori[sz]e|note|store|save)\s+(?:that|this|the following)\b",
)


def _any_of(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE | re.MULTILINE)


_USERS, _TOOLS = _any_of(*_BY_USERS, *_SPOOFED), _any_of(*_BY_USERS, *_SPOOFED, *_BY_TOOLS)


class Provenance(NamedTuple):
    """Limits that follow from a statement's messages: `shared` beyond their users, or `dropped` altogether."""

    shared: bool
    dropped: bool
    planted: bool = False
    """Whether it rests on a message that looks planted."""


def is_planted(text: str, *, by_tool: bool = False) -> bool:
    """Return whether a text tells an agent what to take for what, to keep or to hide, or poses as its operator.

    `by_tool`: any order counts, because a tool has none to give.
    """
    return (_TOOLS if by_tool else _USERS).search(text) is not None


def planted_messages(transcript: Transcript, *, has_users: bool) -> Iterator[str]:
    """Yield the messages of users and tools that look planted, and the agent's answers to them.

    `has_users`: users take part; where none does, only tools are not trusted.
    """
    planted = False
    for name, line in _lines(transcript):
        if line.role == "tool":
            planted = is_planted(line.text, by_tool=True)
        elif line.role != "assistant":
            planted = has_users and line.role != "system" and is_planted(line.text)
        if planted:
            yield name


def provenance_of(
    text: str,
    transcript: Transcript,
    sources: tuple[SourceMessage, ...],
    roles: Set[str],
    planted: Set[str],
) -> Provenance:
    """Return what a statement's messages allow; `roles`: those whose messages may form memory that others see.

    A statement that says what only a message of another role says rests on that message, whatever a model names.
    `planted`: the messages that look planted.
    """
    cited = {source.message_id for source in sources}
    lines = dict(_lines(transcript))
    own = [line for name, line in lines.items() if name in cited]
    borrowed = _borrowed(text, " ".join(line.text for line in own if line.role in roles), lines, roles)
    rests_on_planted = not planted.isdisjoint(cited | borrowed)
    users_own = not borrowed and any(line.role == "user" for line in own)
    return Provenance(
        shared=not rests_on_planted and not borrowed and all(line.role in roles for line in own),
        dropped=rests_on_planted and not users_own and any(line.role == "tool" for line in lines.values()),
        planted=rests_on_planted,
    )


def _borrowed(text: str, said: str, lines: Mapping[str, TranscriptLine], roles: Set[str]) -> set[str]:
    """Return the messages of other roles whose words a text repeats, where its own messages do not say them."""
    if adds_little(text, said):
        return set()
    return {name for name, line in lines.items() if line.role not in roles and adds_little(text, line.text)}


def _lines(transcript: Transcript) -> Iterator[tuple[str, TranscriptLine]]:
    for source, line in zip(transcript.sources, transcript.lines, strict=True):
        yield source.message_id, line
