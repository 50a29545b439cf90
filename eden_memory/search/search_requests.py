"""The checked request of a search, its report, and messages that are not formed yet."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, TypedDict

from eden_memory.errors import Invalid
from eden_memory.limits import MOST_FOUND, MOST_QUERIES, MOST_QUERY_CHARACTERS
from eden_memory.memory.memory_views import RecentMessage, ShownScope, Speaker, View
from eden_memory.models.question import Asking
from eden_memory.schemas.scopes import FORMED_KINDS, FormedKind, ScopeKind
from eden_memory.search.fact_candidates import NOW, MemoryKind, When
from eden_memory.tasks import in_utc, off_the_loop

Kind = Literal["hybrid", "semantic", "text"]

SearchSort = Literal["score", "occurred_at"]
"""occurred_at: orders results by when they happened, the latest first; facts that do not say when come last."""

FactScope = Literal["user", "group", "agent", "shard"]
"""Kinds of scope that have facts; a session's memory has none."""

TextOnly = Literal["over_budget", "unavailable"]

SearchedKind = FormedKind

SEARCHED: tuple[str, ...] = FORMED_KINDS

FACTS: tuple[SearchedKind, ...] = ("facts",)


class SearchOptions(TypedDict, total=False):
    """The keyword arguments of MemoryService's searches; the others as the fields of :class:`SearchRequest` say."""

    top_k: int
    search_type: Kind
    recency_weight: float | None
    score_threshold: float | None
    related: bool
    sort: SearchSort
    kinds: Sequence[SearchedKind]
    session: Any
    user: Any
    scopes: Sequence[ScopeKind] | None
    """Only facts in scopes of these kinds; None: in all that are visible."""
    as_of: datetime | None
    """Search the memory of that time (UTC if it has no zone); None: the present."""
    include_retired: bool
    occurred_after: datetime | None
    """Only facts about what happened then or later, whenever it was said (UTC if it has no zone)."""
    occurred_before: datetime | None
    """Only facts about what happened before then."""
    asked_at: datetime | None
    """The moment from which "last week" and a fact's age are counted; None: now."""


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search; Invalid if an argument is."""

    queries: tuple[str, ...]
    """At most three queries; blank ones are dropped, equal ones asked once."""
    top_k: int = 10
    """Most facts returned for each query, 0 to 200; 0 finds nothing."""
    search_type: Kind = "hybrid"
    when: When = NOW
    asked_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    """The moment from which "last week" and a fact's age are counted; aware."""
    recency_weight: float | None = None
    """0 to 1, how much of the score is freshness; None: not at all."""
    score_threshold: float | None = None
    """Facts with a lower score are left out; the score is relative, 1 for the best of every list."""
    related: bool = False
    """Whether the query is a whole message: nothing is returned unless the message asks for something remembered, and
    then only what is about as near to it as the best."""
    sort: SearchSort = "score"
    list_size: int | None = None
    """Candidates of each list; None: as the settings say."""
    asking: Asking | None = None
    """For which agent and user the embedder is asked; their budgets count."""
    private: frozenset[str] = frozenset()
    """Keys of scopes in which facts that rest on users' words are not found."""
    kinds: Sequence[SearchedKind] = FACTS
    """The kinds of memory to search; facts and reflections are ranked together."""

    def __post_init__(self) -> None:
        if len(self.queries) > MOST_QUERIES:
            raise Invalid(f"{len(self.queries)} queries at once", f"Give at most {MOST_QUERIES}.")
        if self.search_type not in {"hybrid", "semantic", "text"}:
            raise Invalid(f"search type {self.search_type!r:.40}", "It is hybrid, semantic or text.")
        if self.sort not in {"score", "occurred_at"}:
            raise Invalid(f"sort {self.sort!r:.40}", "It is score or occurred_at.")
        if isinstance(self.kinds, str) or not self.kinds or not set(self.kinds) <= set(SEARCHED):
            raise Invalid(f"kinds {self.kinds!r:.60}", f"Give a list of: {', '.join(SEARCHED)}.")
        if self.recency_weight is not None and not 0 <= self.recency_weight <= 1:
            raise Invalid(f"recency weight {self.recency_weight}", "It is between 0 and 1.")
        size = 1 if self.list_size is None else self.list_size
        if self.top_k < 0:
            raise Invalid(f"top_k {self.top_k}", f"It is between 0 and {MOST_FOUND}.")
        if self.top_k > MOST_FOUND or not 1 <= size <= MOST_FOUND:
            raise Invalid("more facts than a search gives", f"Ask for at most {MOST_FOUND}.")
        if self.asked_at.tzinfo is None:
            raise Invalid("asked_at has no time zone", "Give an aware time, such as datetime.now(UTC).")
        in_utc(self.asked_at)  # the zone is kept: a question's days are days in that zone

    @property
    def texts(self) -> tuple[str, ...]:
        """The queries in the form in which they are asked."""
        whole = (" ".join(query.split())[:MOST_QUERY_CHARACTERS] for query in self.queries)
        return tuple(dict.fromkeys(query for query in whole if query))


@dataclass(frozen=True, slots=True)
class FoundFact(View):
    """A fact that a search found, or a reflection, whose id is then `fact_id`."""

    fact_id: str
    content: str
    scope: ShownScope
    score: float
    """The rank's score, 0 to 1; not comparable with another search's."""
    formed_at: datetime
    """When it was formed: of history read in, long after it was said."""
    version: int
    valid_from: datetime
    """Since when this version holds."""
    said_at: datetime
    """When what began it was said."""
    occurred_at: datetime | None = None
    """When what it tells of happened or begins, where its text says so."""
    retired_at: datetime | None = None
    kind: MemoryKind = "fact"
    scores: Mapping[str, float] = field(default_factory=dict[str, float])
    """By stage: `semantic` (1 + cosine) / 2, `text` the store's, `fused`, `relevance`, what later stages gave it."""

    @property
    def relevance(self) -> float:
        """How relevant it is to the nearest query, 0 to 1, and comparable between searches (docs/searching.md)."""
        return self.scores.get("relevance", 0.0)

    @property
    def similarity(self) -> float | None:
        """(1 + cosine) / 2 with the nearest query, if it is known."""
        return self.scores.get("semantic")


@dataclass(frozen=True, slots=True)
class FoundMessage(View):
    """A message that a search found, from which no memory is formed yet; ids typed."""

    message_id: str
    session_id: str
    speaker: Speaker
    content: str
    said_at: datetime
    score: float
    """The share of the query's words that it has; not comparable with a fact's score."""


@dataclass(frozen=True, slots=True)
class StageReport(View):
    """Time, candidates and scores of one stage of a search."""

    name: str
    milliseconds: float
    candidates: int
    """Facts that the stage kept, or found."""
    scores: tuple[tuple[str, float], ...] = ()
    """(fact id, score) of the first of them, best first."""


@dataclass(frozen=True, slots=True)
class SearchReport(View):
    """The facts that were found, best first, and how."""

    facts: tuple[FoundFact, ...]
    stages: tuple[StageReport, ...] | None = ()
    """None where `debug` did not ask for them."""
    warnings: tuple[str, ...] = ()
    """Parts that failed and were left out: `semantic`, `text`, `rerank`, with the reason."""
    milliseconds: float = 0.0
    text_only: TextOnly | None = None
    """Why facts were found by words alone: `over_budget`, or `unavailable` (the embedder or its list failed).

    None: as asked for.
    """
    unformed: tuple[FoundMessage, ...] = ()
    """Messages of the user's other sessions that are not formed yet, found by their words; best first."""


Scored = tuple[float, RecentMessage]

MOST_UNFORMED = 5

FEW_CHARACTERS = 10_000
"""Characters that are searched within a millisecond."""

TOGETHER = 20
"""Messages that are searched in one turn of the thread, which others wait for, too."""

LEAST_SHARE = 0.34
"""Least share of a query's words; a message with fewer is hardly about the query."""


async def find_unformed(
    queries: Iterable[str], messages: Sequence[RecentMessage], most: int
) -> tuple[FoundMessage, ...]:
    """Like :func:`found_unformed`, in a thread if there is much to read."""
    asked, found = list(queries), list[Scored]()
    if sum(len(message.content) for message in messages) <= FEW_CHARACTERS:
        return found_unformed(asked, messages, most)
    for start in range(0, len(messages), TOGETHER):
        found += await off_the_loop(partial(_scored, asked, messages[start : start + TOGETHER]))
    return _best(found, most)


def found_unformed(
    queries: Iterable[str], messages: Sequence[RecentMessage], most: int
) -> tuple[FoundMessage, ...]:
    """Return the messages that have the most words of any query, the newer of equal ones first."""
    return _best(_scored(queries, messages), most)


def _scored(queries: Iterable[str], messages: Iterable[RecentMessage]) -> list[Scored]:
    from eden_memory.search.text_index import share_asked, stems_asked, stems_of  # noqa: PLC0415 - loads tantivy

    asked = [stems_asked(query) for query in queries]
    scored = ((share_asked(asked, stems_of(message.content)), message) for message in messages)
    return [(score, message) for score, message in scored if score >= LEAST_SHARE]


def _best(found: Iterable[Scored], most: int) -> tuple[FoundMessage, ...]:
    best = sorted(found, key=lambda pair: (pair[0], pair[1].said_at), reverse=True)
    return tuple(_found(message, score) for score, message in best[: min(most, MOST_UNFORMED)])


def _found(message: RecentMessage, score: float) -> FoundMessage:
    return FoundMessage(
        message_id=message.message_id,
        session_id=message.session_id,
        speaker=message.speaker,
        content=message.content,
        said_at=message.said_at,
        score=score,
    )
