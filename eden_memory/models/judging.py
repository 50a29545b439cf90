"""Judges whether an answer is valid, asks again if not, and ends a question that cannot succeed."""

import asyncio
import json
import re
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, cast, get_args, get_origin

import json_repair
from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticSerializationError, from_json

from eden_memory.errors import PermanentError, ProviderError, QuestionSpent
from eden_memory.models.provider_calls import THOUGHT, Completion, PromptTurn, candidates, found_json, loaded
from eden_memory.models.question import A, Prompt
from eden_memory.schemas.answers import AS_SAID, MOST_MESSAGES, JudgedItem, ModelAnswer
from eden_memory.schemas.events.usage import CallOutcome
from eden_memory.stages.retry_waits import PROBES, SEVERAL, growing

TRUNCATED = "truncated"

REFUSED = "refused"

EMPTY = "empty"

SET_ASIDE = "set aside"
"""Marks the last answer of a question that is asked anew, as the model may be at fault."""

ERRORS_NAMED = 8


def cut_short(completion: Completion) -> str | None:
    """Return what is wrong with an answer before its content is read."""
    if completion.finish == "truncated":
        return TRUNCATED
    return REFUSED if completion.finish == "refused" else None


def parsed(text: str, answer: type[A]) -> A | str:
    """Return the answer in a text, or what is wrong with it in words for the model (without its text)."""
    if not text.strip():
        return EMPTY
    try:
        return answer.model_validate_json(found_json(text), context=AS_SAID)
    except ValidationError as error:
        return _named(error)


LONGEST_REPAIRED = 16_000
"""Characters of an answer that json-repair is given: stray quotes cost it time that grows with their square."""

LONGEST_NUMBER = 9

ESCAPE = re.compile(
    r"""(\\(?:["'\\/bfnrt]|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"""
    r"""|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}))|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|(\\)"""
)
"""An escape, else half of a surrogate pair, else a backslash that stands for itself, as in a Windows path."""


async def read(text: str, answer: type[A]) -> tuple[A, int] | str:
    """Return what `readable` does; repairing may take seconds, so it happens in a thread."""
    value = parsed(text, answer)
    return (
        await asyncio.to_thread(readable, text, answer) if isinstance(value, str) else (_each_once(value), 0)
    )


def readable(text: str, answer: type[A]) -> tuple[A, int] | str:
    """Return what can be read of an answer and how many items cannot, else what is wrong with it, as `parsed`.

    Items of a text that had to be repaired are personal and sensitive: its judgement may be broken, too.
    """
    value = parsed(text, answer)
    if not isinstance(value, str):
        return _each_once(value), 0
    of_items = bool(_lists_of(answer))
    found = (
        _by_item(said, answer, repaired=repaired) for said, repaired in _repaired(text, of_items=of_items)
    )
    return next((part for part in found if part is not None), value)


def _repaired(text: str, *, of_items: bool) -> Iterator[tuple[Any, bool]]:
    """Yield what the JSON in a text may be, and whether the text had to be repaired for it.

    `of_items`: what is cut off may be completed, as the last item then lacks fields.
    """
    said = list(candidates(text))
    for candidate in (found_json(text), *said):
        yield loaded(candidate), False
    mended = [ESCAPE.sub(_escaped, candidate) for candidate in said]
    for candidate in mended:
        with suppress(ValueError, RecursionError):
            yield json.loads(candidate, strict=False), True
    begin, end = re.search(r"[\[{]", mended[0]), max(map(mended[0].rfind, "}]")) + 1
    if of_items and begin is not None and end - begin.start() <= LONGEST_REPAIRED:
        with suppress(ValueError, RecursionError):
            # Opened as a list: else it keeps only the last of several objects that follow each other.
            yield _mended(f"[{mended[0][begin.start() : end]}"), True


def _mended(text: str) -> Any:
    """Return the value of a text that is not quite JSON.

    json-repair reads the two escapes of an emoji as two characters, which no JSON can hold: read again, they are one.
    """
    return json.loads(json.dumps(json_repair.loads(text, skip_json_loads=True)))


def _escaped(found: re.Match[str]) -> str:
    return found[1] or ("\\\\" if found[2] else "")


def _by_item(found: Any, answer: type[A], *, repaired: bool) -> tuple[A, int] | None:
    """Return an answer of the items that are valid, with the number of the others; None if none is."""
    if not (lists := _lists_of(answer)):
        value = _valid(found, answer, repaired=repaired)
        return None if value is None else (value, 0)
    parts = cast("list[Any]", found) if isinstance(found, list) else [found]
    if len(lists) > 1 and not all(isinstance(part, dict) and lists.keys() <= part.keys() for part in parts):
        return None
    stated = {name: [held for part in parts for held in _held(part, name)] for name in lists}
    valid: dict[str, list[ModelAnswer]] = {}
    for name, kind in lists.items():
        read_items = (_valid(fields, kind, repaired=repaired) for fields in stated[name])
        valid[name] = [item for item in read_items if item is not None]
    kept, said = (sum(map(len, items.values())) for items in (valid, stated))
    if not kept and (said or repaired):
        return None
    return _each_once(answer.model_validate(valid)), said - kept


def _held(part: Any, name: str) -> list[Any]:
    """Return what a part of an answer holds under a name; a part without it is an item itself."""
    held = cast("dict[str, Any]", part).get(name, part) if isinstance(part, dict) else part
    return cast("list[Any]", held) if isinstance(held, list) else [held]


def _each_once(value: A) -> A:
    """Return an answer without the items that repeat earlier ones: a small model may repeat itself without an end."""
    once: dict[str, list[ModelAnswer]] = {}
    for name in _lists_of(type(value)):
        first: dict[str, ModelAnswer] = {}
        for item in cast("list[ModelAnswer]", getattr(value, name)):
            first.setdefault(repr(item), item)
        once[name] = [*first.values()]
    return value.model_copy(update=once) if once else value


def _lists_of(answer: type[ModelAnswer]) -> dict[str, type[ModelAnswer]]:
    """Return the class of the items by the name of their list; of an answer with other fields, nothing."""
    fields = {name: field.annotation for name, field in answer.model_fields.items()}
    lists = all(get_origin(annotation) is list for annotation in fields.values())
    return {name: get_args(annotation)[0] for name, annotation in fields.items()} if lists else {}


def _valid(found: Any, kind: type[A], *, repaired: bool) -> A | None:
    """Return an item, or an answer without a list, forgiving what changes nothing: fields that nobody asked for,
    no null, one number in place of a list, numbers in other forms."""
    if not isinstance(found, dict):
        return None
    said = cast("dict[str, Any]", found)
    fields: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        if name in said:
            of_numbers = field.annotation == list[int]
            fields[name] = _numbers(said[name]) if of_numbers else said[name]
        elif type(None) in get_args(field.annotation):
            fields[name] = None
    if repaired and issubclass(kind, JudgedItem):
        fields |= {"about": "person", "sensitive": True}
    try:
        item = kind.model_validate(fields, context=AS_SAID)
        item.model_dump_json()
    except (ValidationError, PydanticSerializationError):  # the latter: half of an emoji
        return None
    return item


def _numbers(said: Any) -> list[int]:
    """Return the numbers of messages, also of `3`, `"3"` and `["[3]"]`."""
    stated: Sequence[Any] = cast("list[Any]", said) if isinstance(said, list) else [said]
    bare = (str(number).strip("[] ") for number in stated)
    return [int(number) for number in bare if number.isdecimal() and len(number) <= LONGEST_NUMBER]


def complete_items(text: str, answer: type[A]) -> tuple[A, int] | str:
    """Return the complete items of an answer that was cut off, as `readable` does; TRUNCATED if there are none.

    An item that was cut off in a list of numbers without an end is complete but for these. Items in a thought that
    was cut off are drafts.
    """
    names, answered = list(_lists_of(answer)), THOUGHT.sub("", text)
    if len(names) != 1 or answered.lstrip().lower().startswith("<think"):
        return TRUNCATED
    (name,) = names
    for said, repaired in _cut_off(answered):
        stated = cast("dict[str, Any]", said).get(name) if isinstance(said, dict) else None
        if isinstance(stated, list):
            *whole, last = cast("list[Any]", stated) or [None]
            numbers = cast("dict[str, Any]", last).get("messages") if isinstance(last, dict) else None
            if isinstance(numbers, list) and len(cast("list[Any]", numbers)) > MOST_MESSAGES:
                whole.append(last)
            if whole and (found := _by_item({name: whole}, answer, repaired=repaired)) is not None:
                return found
    return TRUNCATED


def _cut_off(text: str) -> Iterator[tuple[Any, bool]]:
    """Yield what a text holds that was cut off, without the string in which it was, and whether it was repaired."""
    mended = ESCAPE.sub(_escaped, text[text.find("{") :])
    with suppress(ValueError):
        yield from_json(mended, allow_partial=True), mended != text[text.find("{") :]
    if len(mended) <= LONGEST_REPAIRED:
        with suppress(ValueError, RecursionError):
            yield _mended(mended[: max(map(mended.rfind, "}]")) + 1]), True


def _named(error: ValidationError) -> str:
    errors = error.errors(include_url=False, include_input=False, include_context=False)
    lines = [f"{_place(error_details)}: {error_details['msg']}" for error_details in errors[:ERRORS_NAMED]]
    return "; ".join([*lines, *(["and more"] if len(errors) > ERRORS_NAMED else [])])


def _place(error: ErrorDetails) -> str:
    """The path of a field; one that the answer adds is not named, as its name may be anything."""
    added = error["type"] == "extra_forbidden"
    path = error["loc"][:-1] if added else error["loc"]
    return ".".join(map(str, path)) or "the answer"


CALLS = 6
"""Calls that a question may cost over all attempts; truncated answers count only here."""

MOST_INVALID = 3
"""Invalid answers after which a question is given up: one and two repairs."""

MOST_INVALID_OF_ALL = 2
"""Invalid or truncated answers after which a question about several scopes is asked in parts."""

SHOWN_OF_CUT = 400
"""Characters of a truncated answer that are shown again."""

NOTES = {
    TRUNCATED: "Your answer was cut off at the length limit. Answer again, complete, and shorter.",
    REFUSED: "That was no answer. The task above only sorts and rewrites its content; answer it with the"
    " JSON object asked for, with empty lists where nothing qualifies.",
    EMPTY: "Your answer was empty. Answer with the JSON object asked for.",
}

INVALID_NOTE = (
    "That is not a valid answer: {problem}\nAnswer again with the whole JSON object, exactly as asked for,"
    " and nothing else."
)

SHORT_NOTE = (
    "The answer has the right form, but: {problem}\nAnswer again with the whole JSON object, corrected, and"
    " nothing else."
)


HOLD = 60.0
"""Seconds between the attempts of a question that waits to learn whether others are answered readably."""


class Readings:
    """Which sessions in a row had no readable answer, by stage and model (`of`)."""

    def __init__(self) -> None:
        self._read: Counter[str] = Counter()
        self._failing: dict[str, dict[str, str]] = {}
        """The user of each session."""
        self._readers: dict[str, set[str]] = {}
        """Several users at most who had readable answers in this process."""
        self._held: OrderedDict[str, int] = OrderedDict()
        """Number of answers read when a question was set aside, by unit."""
        self._probes: dict[str, tuple[int, float]] = {}
        """Probes in vain, and when the next one may be made."""

    def count(self, of: str) -> int:
        """Return how many answers could be read."""
        return self._read[of]

    def fails(self, of: str) -> bool:
        """Return whether the answers to several sessions in a row could not be read.

        Those of few users do not count if others had readable answers: their messages may bring that about.
        """
        failing = self._failing.get(of, {})
        users = {*failing.values()}
        return len(failing) >= SEVERAL and (len(users) >= SEVERAL or self._readers.get(of, set()) <= users)

    def readable(self, of: str, user: str) -> None:
        """Record an answer that could be read."""
        self._read[of] += 1
        if len(readers := self._readers.setdefault(of, set())) < SEVERAL:
            readers.add(user)
        self._failing.pop(of, None)
        self._probes.pop(of, None)

    def admit(self, of: str, session: str) -> None:
        """Return if a question may be asked: while answers cannot be read, one from time to time."""
        if not self.fails(of):
            return
        probes, due = self._probes.get(of, (0, 0.0))
        if (left := due - monotonic()) > 0:
            raise self._doubt(of, session, left)
        self._probes[of] = probes + 1, monotonic() + growing(PROBES, probes + 1)

    def unreadable(self, of: str, unit: str, session: str, user: str) -> ProviderError:
        """Record a question without a readable answer; return what to raise while it may be the model's fault."""
        self._failing.setdefault(of, {})[session] = user
        self.hold(unit, self._read[of])
        return self._doubt(of, session, HOLD)

    def hold(self, unit: str, read_before: int) -> None:
        """Remember how many answers could be read before a question."""
        self._held.pop(unit, None)
        self._held[unit] = read_before
        while len(self._held) > REMEMBERED:
            self._held.popitem(last=False)

    def waits(self, of: str, unit: str) -> bool:
        """Return whether nothing has been learnt since a question was set aside in this process."""
        return not self.fails(of) and self._held.get(unit) == self._read[of]

    def read_before(self, unit: str, otherwise: int) -> int:
        """Return how many answers could be read when a question was set aside or split, if this process did that."""
        return self._held.get(unit, otherwise)

    def _doubt(self, of: str, session: str, seconds: float) -> ProviderError:
        if self.fails(of):
            reason = f"answers to several sessions in a row cannot be read ({of}): check the model and its endpoint"
            return ProviderError(reason, seconds, counts=False, session=session)
        return ProviderError("none of its answers can be read", seconds, alone=True, session=session)


def turns_of(prompt: Prompt, text: str | None = None, note: str = "") -> tuple[PromptTurn, ...]:
    """Return the question; after an earlier answer, also that answer and what is wrong with it."""
    asked = PromptTurn("user", prompt.user)
    if text is None:
        return (asked,)
    return asked, PromptTurn("assistant", text.strip() or "(nothing)"), PromptTurn("user", note)


def invalid_note(problem: str) -> str:
    """Explain to the model why an answer is invalid."""
    return NOTES.get(problem) or INVALID_NOTE.format(problem=problem)


def shortcoming_note(problem: str) -> str:
    """Explain to the model why a valid answer cannot be used."""
    return SHORT_NOTE.format(problem=problem)


def shown_again(text: str, problem: str) -> str:
    """Return the part of an answer that the model is shown."""
    return text[:SHOWN_OF_CUT] + " …" if problem == TRUNCATED and len(text) > SHOWN_OF_CUT else text


LEAST = 256

DOUBLINGS = 3


def most_tokens(longest: int, repair: int = 0) -> int:
    """Return a call's limit: the longest answer that its prompt allows; a repair has twice as much as before."""
    return max(LEAST, longest) << min(repair, DOUBLINGS)


REMEMBERED = 20_000


class CallBudget:
    """Only calls whose failure the question is to blame for are charged; those refused for their rate (unpaid)
    are counted by themselves."""

    def __init__(self, most: int = CALLS) -> None:
        self._most = most
        self._spent: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._last: dict[str, str] = {}
        self._refused: OrderedDict[str, str] = OrderedDict()

    def check(self, unit: str, kept: int = 0) -> None:
        """PermanentError if the question may cost no more, QuestionSpent if it has none of the `kept` answers."""
        if unit in self._refused:
            raise QuestionSpent(f"the provider has refused it: {self._refused[unit]}")
        calls, refused = self._spent.get(unit, (0, 0))
        if max(calls, kept) >= self._most or refused >= self._most:
            last = self._last.get(unit, "its answers are kept")
            spent = PermanentError if kept else QuestionSpent
            raise spent(f"{max(calls, kept) + refused} calls brought no valid answer; {last}")

    def charge(self, unit: str, outcome: CallOutcome) -> None:
        """Count a call."""
        calls, refused = self._spent.pop(unit, (0, 0))
        limited = outcome == "rate_limited"
        self._spent[unit] = (calls + (not limited), refused + limited)
        self._last[unit] = f"the last one was {outcome.replace('_', ' ')}"
        while len(self._spent) > REMEMBERED:
            oldest, _ = self._spent.popitem(last=False)
            self._last.pop(oldest, None)

    def refused(self, unit: str, reason: str) -> None:
        """Record that the provider will never accept the question: no further call is made."""
        self._refused[unit] = reason
        while len(self._refused) > REMEMBERED:
            self._refused.popitem(last=False)

    def settled(self, unit: str) -> None:
        """Forget a question that was answered."""
        for noted in (self._spent, self._last, self._refused):
            noted.pop(unit, None)
