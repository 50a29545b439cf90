"""The messages that a statement rests on by its words, where those that the model named are too few or all. Pure."""

import re
from collections.abc import Sequence

from eden_memory.formation.transcript import REMOVED, Transcript
from eden_memory.schemas.answers import MOST_MESSAGES
from eden_memory.schemas.provenance import SourceMessage

_WORD = re.compile(r"[^\W_]+")
_COMPARED = 5
"""Characters of a word that are compared: the rest is often an ending."""
_FEW, _NEARLY_ALL = 4, 0.8
"""Messages of a window, at least, and the share of them that is nearly all."""
_SHORTEST = 3
"""Characters of a telling word, at least; a word with a digit may be shorter."""
_PLAIN: str = (
    "about all and any are but can did does for from had has have her him his its not now off one our out she some "
    "than that the their them then there they this too user was were what when where which who will with would you "
    "your"
)
"""English words that tell nothing. Those of other languages only make messages sources that need not be."""


def with_unnamed(
    text: str, transcript: Transcript, cited: tuple[SourceMessage, ...]
) -> tuple[SourceMessage, ...]:
    """Return the cited messages, and each before the window with a telling word that the cited ones do not have.

    Where these have no telling word of the text, all messages before the window count; where one was removed, nobody
    knows its words, and it counts if the cited ones have not all. Names of those who speak tell nothing.
    """
    if not transcript.explaining:
        return cited
    chosen = {source.message_id for source in cited}
    said = dict(zip(transcript.shown, (line.text for line in transcript.lines), strict=True))
    known = _beginnings(" ".join(said[name] for name in chosen))
    telling = _telling(text) - _beginnings(" ".join(line.speaker for line in transcript.lines))
    missing = telling - known
    for name in transcript.shown[len(transcript.own) :]:
        unknown = said[name] == REMOVED and bool(missing)
        if missing == telling or unknown or _beginnings(said[name]) & missing:
            chosen.add(name)
    return tuple(source for source in transcript.sources if source.message_id in chosen)


def nearly_all(numbers: Sequence[int], transcript: Transcript) -> bool:
    """Return whether numbers name nearly all messages of a window, or count on without an end: that is no choice."""
    own = len(transcript.own)
    valid = {number for number in numbers if 1 <= number <= own}
    return len(numbers) > MOST_MESSAGES or (own >= _FEW and len(valid) > _NEARLY_ALL * own)


def with_its_words(
    text: str, transcript: Transcript, cited: tuple[SourceMessage, ...]
) -> tuple[SourceMessage, ...]:
    """Return those of the cited messages that a text has its words from; all of them, where no user's has one.

    These are the users' messages with more than half as many telling words of it as the one with most, and each
    message with a telling word that they do not have.
    """
    lines = dict(zip(transcript.shown, transcript.lines, strict=True))
    telling = _telling(text) - _beginnings(" ".join(line.speaker for line in transcript.lines))
    words = {source.message_id: telling & _beginnings(lines[source.message_id].text) for source in cited}
    of_users = {name: len(found) for name, found in words.items() if lines[name].role == "user"}
    most = max(of_users.values(), default=0)
    if not most:
        return cited
    chosen = {name for name, number in of_users.items() if 2 * number > most}
    known = set[str]().union(*(words[name] for name in chosen))
    return tuple(
        source for source in cited if source.message_id in chosen or words[source.message_id] - known
    )


def share_said(text: str, said: str) -> float:
    """Return the share of a text's telling words that what was said has; 1 for a text without any."""
    telling = _telling(text)
    return len(telling & _beginnings(said)) / len(telling) if telling else 1.0


def _telling(text: str) -> set[str]:
    words = (word for word in _WORD.findall(text.casefold()) if word not in _PLAIN.split())
    return {_beginning(word) for word in words if len(word) >= _SHORTEST or not word.isalpha()}


def _beginnings(text: str) -> set[str]:
    return {_beginning(word) for word in _WORD.findall(text.casefold())}


def _beginning(word: str) -> str:
    return word.removesuffix("s")[:_COMPARED]
