"""Scopes in the questions of the two extractions, and the scopes to which their answers are assigned. Pure.

The questions hold each scope's limits and brief; assignments are checked against what the model was shown. When
something happened, apart from when it was said, is taken only from a fact's own text.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal

from eden_memory.access.visible import WIDE
from eden_memory.directory.participants import given_to_all
from eden_memory.forgotten import Marks
from eden_memory.formation.consolidation_rules import unversioned
from eden_memory.formation.prompt_material import DatedText, ScopeBrief
from eden_memory.formation.prompts import one_line
from eden_memory.formation.shareable import (
    Provenance,
    adds_little,
    contradicts,
    is_personal,
    names_one_of,
    planted_messages,
    provenance_of,
)
from eden_memory.formation.transcript import Transcript, renamed
from eden_memory.formation.unnamed_sources import nearly_all, with_its_words, with_unnamed
from eden_memory.limits import STANDARD, FormationLimits, ScopeLimits, fitted, label_of, limits_of
from eden_memory.memory.snapshot_projection import newest_buffered
from eden_memory.redaction import without_unseen
from eden_memory.schemas.answers import StatedFact, StatedReflection
from eden_memory.schemas.documents import Snapshot, Stream
from eden_memory.schemas.events.formation import LeftOutBecause, LeftOutFact, Window
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.scopes import NotShared, Scope, ScopeKind

OF_THEMSELVES = (
    "Here: what one person says of themself, resting on that person's messages alone; it is kept for them"
)


_BEGINS = re.compile(r"(\d{4})(?:-\d\d(?:-\d\d(?:[T ]\d\d:\d\d\S*)?)?)?", re.ASCII)
_PADDED = {len("2026"): "-01-01", len("2026-03"): "-01"}
SHARED_ROLES = frozenset({"user", "assistant", "system", "other"})
_VOUCHED = frozenset({"assistant", "system"})
"""Roles that speak for the agent: no user's words, and no tool's."""


@dataclass(frozen=True, slots=True)
class Scopes:
    """The scopes of one question, from broad to narrow, each with its limits."""

    limits: Mapping[Scope, ScopeLimits]
    of_all: FormationLimits = STANDARD
    of_authors: bool = False
    """Those of users are the authors' own, for what each says of themselves; a prompt shows one for all of them."""

    @classmethod
    def of(
        cls,
        scopes: Iterable[Scope],
        streams: Mapping[str, Stream],
        of_all: FormationLimits = STANDARD,
        *,
        kind: Literal["facts", "reflections"] = "reflections",
        of_authors: bool = False,
    ) -> "Scopes":
        """Return those of the scopes that have such items, with limits, an agent's streams taken into account."""
        found = {scope: limits_of(scope, streams, of_all) for scope in scopes}
        formed = {scope: limits for scope, limits in found.items() if limits.forms(kind)}
        if kind == "facts":
            formed = {scope: limits.of_facts(of_all.facts) for scope, limits in formed.items()}
        return cls(formed, of_all, of_authors)

    @property
    def all(self) -> tuple[Scope, ...]:
        """The scopes, from broad to narrow."""
        return tuple(self.limits)

    @property
    def model(self) -> str | None:
        """The model that the broadest scope with a wish of its own asks for: one call serves them all."""
        named = (limits.extraction_model for limits in self.limits.values())
        return next(filter(None, named), None)

    @property
    def own_prompt(self) -> str | None:
        """The instructions of the first scope's own: it stands alone then."""
        return next((limits.extraction_prompt for limits in self.limits.values()), None)

    @property
    def asks_together(self) -> bool:
        """Return whether one call asks for all of them: none has instructions of its own."""
        return all(limits.extraction_prompt is None for limits in self.limits.values())

    def words(self, most: int) -> dict[str, int]:
        """Return the word limit of an item by scope key: a stream's own limit, else `most`."""
        return {scope.key: limits.item_words or most for scope, limits in self.limits.items()}

    def past(self, window: Window, now: datetime) -> frozenset[Scope]:
        """Return the scopes in which a fact of this window would have expired by now."""
        untils = {scope: limits.until(window.last_at or now) for scope, limits in self.limits.items()}
        return frozenset(scope for scope, until in untils.items() if until is not None and until <= now)

    def for_facts(self) -> tuple[ScopeBrief, ...]:
        """Return briefs without existing memory: facts must stand alone."""
        return tuple(
            ScopeBrief(
                label_of(scope), self._guidance(scope), limits.least, limits.most, words=limits.item_words
            )
            for scope, limits in self._shown().items()
        )

    def for_reflections(self, known: Mapping[str, Snapshot], marks: Marks) -> tuple[ScopeBrief, ...]:
        """Return briefs with each scope's text and newest reflections, as far as they are not forgotten."""
        return tuple(
            replace(_brief(scope, limits, known.get(scope.key), marks), guidance=self._guidance(scope))
            for scope, limits in self._shown().items()
        )

    def _shown(self) -> Mapping[Scope, ScopeLimits]:
        """Return the first scope of each label."""
        first = {label_of(scope): scope for scope in reversed(self.all)}
        return {scope: limits for scope, limits in self.limits.items() if first[label_of(scope)] is scope}

    def _guidance(self, scope: Scope) -> str | None:
        own = self.limits[scope].extraction_guidance
        if not self.of_authors or scope.kind != "user":
            return own
        return f"{OF_THEMSELVES} {own}" if own else OF_THEMSELVES


def of_authors(window: Window) -> bool:
    """Return whether what authors say of themselves goes to their own scope, though others take part."""
    return window.shared_sessions == "authors" and len(window.participants) > 1


def fact_scopes(window: Window) -> tuple[Scope, ...]:
    """Return the scopes that facts may go to: all but the session's."""
    return tuple(scope for scope in window.scopes if scope.kind != "session")


def too_few(items: Iterable[StatedFact | StatedReflection], scopes: Iterable[ScopeBrief]) -> str | None:
    """Return the complaint about scopes of which fewer items are stated than wanted; None: of none."""
    stated = Counter(one_line(item.scope) for item in items if item.text.strip())
    short = [
        f"{brief.label} has {stated[one_line(brief.label)]}, wanted are at least {brief.least}"
        for brief in scopes
        if stated[one_line(brief.label)] < brief.least
    ]
    return None if not short else f"Too few: {'; '.join(short)}. Keep the others; invent nothing."


def known_of(known: Mapping[str, Snapshot]) -> set[tuple[str, str]]:
    """Return (kind, target) of the reflections and texts in snapshots, to look up whether they are forgotten."""
    buffered = {
        ("reflection", reflection.reflection_id) for shot in known.values() for reflection in shot.buffer
    }
    return buffered | {("blob", f"{key}@{shot.blob_version}") for key, shot in known.items()}


def is_private(scope: Scope, authors: Collection[str | None], window: Window) -> bool:
    """Return whether a reflection is never propagated: a private user's, or resting on their words.

    `authors` (`Transcript.authors_of`): where none is a user, the agent may have spoken of any of them.
    """
    users = {author for author in authors if author is not None} or set(window.participants)
    return bool(({scope.user_id} | users) & set(window.private_users))


def _brief(scope: Scope, limits: ScopeLimits, shot: Snapshot | None, marks: Marks) -> ScopeBrief:
    brief = ScopeBrief(
        label_of(scope), limits.extraction_guidance, limits.least, limits.most, words=limits.item_words
    )
    if shot is None:
        return brief
    left = [
        reflection
        for reflection in shot.buffer
        if not marks.entity_gone("reflection", reflection.reflection_id, 1)
    ]
    shown = tuple(
        DatedText(reflection.said_at, reflection.content)
        for reflection in newest_buffered(left, limits.threshold)
    )
    if marks.entity_gone("blob", scope.key, shot.blob_version):
        return replace(brief, buffer=shown)
    blob = shot.blob and unversioned(shot.blob)
    return replace(brief, blob=blob, blob_said_at=shot.blob_said_at, buffer=shown)


def occurrence(answer: str | None, text: str) -> datetime | None:
    """Return the moment that an ISO date, month, year or interval begins with, in UTC.

    Dates in a text are local: an offset is left out, so that the year stays that of the text. None for anything
    else, and for a year that the text does not name: a model invents dates.
    """
    begins = _BEGINS.fullmatch((answer or "").partition("/")[0].strip())
    if begins is None or not names_year(text, int(begins[1])):
        return None
    try:
        return datetime.fromisoformat(begins[0] + _PADDED.get(len(begins[0]), "")).replace(tzinfo=UTC)
    except ValueError:
        return None


def still_said(text: str, *moments: datetime | None) -> datetime | None:
    """Return the first of the moments whose year a text still names."""
    return next((moment for moment in moments if moment and names_year(text, moment.year)), None)


def names_year(text: str, year: int) -> bool:
    """Return whether a text names a year, in whatever digits it writes."""
    plain = "".join(str(unicodedata.decimal(character, character)) for character in text)
    return re.search(rf"(?<!\d){year:04}(?!\d)", plain) is not None


@dataclass(frozen=True, slots=True)
class SharingChecks:
    """What the checks of shared memory need to know besides the window."""

    names: frozenset[str] = frozenset()
    """What those who take part, and other users of the agent, are called."""
    judge: bool = True
    """Whether the model's judgement may share what users said (`eden models check`)."""
    given: tuple[str, ...] = ()
    """What the operator added for all, or pinned."""
    taken_back: tuple[str, ...] = ()
    """Statements that a person took out of shared memory."""


@dataclass(frozen=True, slots=True)
class AssignedItem:
    """A fact or reflection in its scope."""

    text: str
    scope: Scope
    sources: tuple[SourceMessage, ...]
    whole_window: bool
    demoted_from: ScopeKind | None
    not_shared: NotShared | None = None
    shared: bool = True
    """Whether its messages may form memory of a broader scope."""
    occurred_at: datetime | None = None
    """When what a fact tells of happened, where its text says so."""


@dataclass(slots=True)
class ScopeAssignment:
    """Assigns the items of one answer to scopes; `counts` says what became of the others."""

    window: Window
    transcript: Transcript
    scopes: tuple[Scope, ...]
    """Those that the prompt showed."""
    words: Mapping[str, int]
    """Of one item, by scope key."""
    fence: str
    most: Mapping[str, int] = field(default_factory=dict[str, int])
    """By scope key; scopes without an entry hold any number."""
    most_together: int | None = None
    names: tuple[str, ...] = ()
    """People whose names leave a group's memory, too; empty unless the stricter setting is on."""
    shared_roles: Set[str] = SHARED_ROLES
    """Whose messages may form memory of a group, an agent or a shard."""
    checks: SharingChecks = field(default_factory=SharingChecks)
    dropped: list[NotShared] = field(default_factory=list[NotShared])
    """The checks that items without any scope did not pass."""
    left_out: list[LeftOutFact] = field(default_factory=list[LeftOutFact])
    """Each item that is not kept."""
    counts: Counter[str] = field(default_factory=Counter[str])
    """`beyond` a limit of items, `no_scope`, `personal` (dropped), `demoted`, `shortened`, `empty`,
    `whole_window`, `forgotten`, `unnamed` (somebody without a name), `planted` (dropped), `unshared` (demoted),
    `before` (said by messages before the window alone)."""
    _planted: frozenset[str] | None = field(default=None, init=False)
    _taken: Counter[str] = field(default_factory=Counter[str], init=False)

    def assign(
        self, stated: Sequence[StatedFact] | Sequence[StatedReflection], marks: Marks, *, judge: bool
    ) -> list[AssignedItem]:
        """Return the items that stand, in order; `marks` are those known once the answer was there.

        The limits count the items of all answers. `judge`: whether this one's judgement may share what users said.
        """
        self.checks = replace(self.checks, judge=judge)
        assigned: list[AssignedItem] = []
        taken = self._taken
        for statement in stated:
            only_before = self.transcript.only_before(statement.messages)
            self.counts["before"] += only_before
            item = None if only_before else self._item(statement, marks)
            if item is None:
                continue
            if self._full(item.scope, taken):
                self.leave_out("beyond", item.sources)
                continue
            taken[item.scope.key] += 1
            assigned.append(item)
        self.counts["whole_window"] += sum(item.whole_window for item in assigned)
        self.counts["demoted"] += sum(item.demoted_from is not None for item in assigned)
        return assigned

    def _item(self, stated: StatedFact | StatedReflection, marks: Marks) -> AssignedItem | None:
        named = self._scope(stated.scope)
        named_sources, whole = self.transcript.resting_on(stated.messages)
        if named is None:
            self.leave_out("no_scope", named_sources)
            return None
        text = self._text(stated.text, self.words[named.key])
        if named.kind == "user" and of_authors(self.window) and nearly_all(stated.messages, self.transcript):
            named_sources = with_its_words(text, self.transcript, named_sources)
        sources = with_unnamed(text, self.transcript, named_sources)
        provenance = self._provenance(text, sources)
        if not text or provenance.dropped:
            self.leave_out("planted" if text else "empty", sources)
            return None
        scope, withheld = self._scope_for(named, stated, text, sources, whole=whole, provenance=provenance)
        if scope is None:
            self.leave_out("personal", sources, withheld)
            if withheld is not None:
                self.dropped.append(withheld)
            return None
        text = self.transcript.unnamed(text, sources if scope.kind == "user" else ())
        if text is None:
            self.leave_out("unnamed", sources)
            return None
        gone = any(marks.gone_in(self.window, source) for source in sources)
        if gone or marks.scope_gone(scope, self.window.closed_at):
            self.leave_out("forgotten", sources)
            return None
        demoted = named.kind if scope.kind != named.kind else None
        self.counts["unshared"] += withheld in ("role", "planted")
        occurred = occurrence(stated.occurred_at, text) if isinstance(stated, StatedFact) else None
        return AssignedItem(text, scope, sources, whole, demoted, withheld, provenance.shared, occurred)

    def leave_out(
        self, because: LeftOutBecause, sources: Sequence[SourceMessage], check: NotShared | None = None
    ) -> None:
        """Count an item that is not kept, and note which messages it rests on."""
        self.counts[because] += 1
        ids = tuple(source.message_id for source in sources)
        self.left_out.append(LeftOutFact(because=because, not_shared=check, message_ids=ids))

    def _provenance(self, text: str, sources: tuple[SourceMessage, ...]) -> Provenance:
        if self._planted is None:
            has_users = bool(self.window.participants)
            self._planted = frozenset(planted_messages(self.transcript, has_users=has_users))
        return provenance_of(text, self.transcript, sources, self.shared_roles, self._planted)

    def _scope_for(
        self,
        named: Scope,
        stated: StatedFact | StatedReflection,
        text: str,
        sources: Sequence[SourceMessage],
        *,
        whole: bool,
        provenance: Provenance,
    ) -> tuple[Scope | None, NotShared | None]:
        """Return the scope that an item may go to (None: nowhere), and the check that kept it from the one named."""
        if named.kind == "user":  # one label stands for every author's own scope
            return self._users(text, sources, whole=whole) or self._home("session"), None
        if named.kind not in WIDE:
            return named, None
        withheld = self._withheld(named, stated, text, sources, provenance)
        if withheld is None:
            return named, None
        group = self._home("group") if named.kind != "group" and self._hears_several() else None
        if group is not None and self._withheld(group, stated, text, sources, provenance) is None:
            return group, withheld
        own = self._users(text, sources, whole=whole)
        if own is None and self._is_anothers(named, text):
            return None, withheld
        return own or self._home("session"), withheld

    def _withheld(  # noqa: PLR0911 - one line for each check, in their order
        self,
        scope: Scope,
        stated: StatedFact | StatedReflection,
        text: str,
        sources: Sequence[SourceMessage],
        provenance: Provenance,
    ) -> NotShared | None:
        """Return the first check that an item does not pass on its way to those who did not take part.

        No model can pass the checks of the text and its messages; its own judgement comes last. What the operator
        gave to all needs no judgement.
        """
        if not provenance.shared:
            return "planted" if provenance.planted else "role"
        if is_personal(text):
            return "identifier"
        if names_one_of(text, self.names if scope.kind == "group" else ()):
            return "name"
        if given_to_all(self.window.session_id):
            return None
        if scope.kind != "group" and names_one_of(text, self.checks.names):
            return "name"
        if self._of_private_users(sources):
            return "private_user"
        if any(adds_little(text, old) and adds_little(old, text) for old in self.checks.taken_back):
            return "taken_back"
        if not self._agents_alone(sources) and (withheld := self._users_words(scope, text, sources)):
            return withheld
        return "sensitive" if stated.sensitive else "person" if stated.about == "person" else None

    def _users_words(self, scope: Scope, text: str, sources: Sequence[SourceMessage]) -> NotShared | None:
        """Return the check that what users may have said does not pass; a group of several heard it themselves."""
        roles = self.transcript.roles_of(sources)
        if not self.window.participants and self.window.sharing == "private" and not roles <= _VOUCHED:
            return "role"
        if roles <= {"user"} and any(contradicts(text, given) for given in self.checks.given):
            return "contradicts"
        tried = self.checks.judge or (scope.kind == "group" and self._hears_several())
        return None if tried else "untried_model"

    def _of_private_users(self, sources: Sequence[SourceMessage]) -> bool:
        """Return whether a user whose memory is private said it, or may be meant where only the agent spoke."""
        authors = self.transcript.authors_of(sources) - {None} or set(self.window.participants)
        return not authors.isdisjoint(self.window.private_users)

    def _hears_several(self) -> bool:
        return len(self.window.participants) > 1

    def _users(self, text: str, sources: Sequence[SourceMessage], *, whole: bool) -> Scope | None:
        """Return the only user's scope, or that of the only author of it all."""
        if not of_authors(self.window):
            return self._home("user")
        return None if whole else self._authors_own(text, sources)

    def _authors_own(self, text: str, sources: Sequence[SourceMessage]) -> Scope | None:
        """Return the scope of the only author of its sources, if it names nobody else who speaks here."""
        authors = self.transcript.authors_of(sources)
        others = self.transcript.speakers_but(authors)
        for own in self.transcript.names_of(authors):  # which others may share in part
            text = renamed(text, own, "")
        if len(authors) != 1 or names_one_of(text, others):
            return None
        return next(
            (scope for scope in self.scopes if scope.kind == "user" and scope.user_id in authors), None
        )

    def _text(self, stated: str, words: int) -> str:
        """Return the text in one line, without invisible characters, within the word limit."""
        text = " ".join(without_unseen(stated).replace(self.fence, " ").split())
        short = fitted(text, words)
        self.counts["shortened"] += short != text
        return short

    def _scope(self, label: str) -> Scope | None:
        return next((scope for scope in self.scopes if label_of(scope).split() == label.split()), None)

    def _is_anothers(self, scope: Scope, text: str) -> bool:
        """Return whether it concerns one person alone: nobody else who took part may see it either."""
        return is_personal(text) or (scope.kind == "group" and names_one_of(text, self.names))

    def _agents_alone(self, sources: Sequence[SourceMessage]) -> bool:
        """Return whether no user's words can be behind it, and no tool's."""
        heard = self.transcript.roles_of(self.transcript.sources) - _VOUCHED - {"tool"}
        named = any(source.user_id for source in self.transcript.sources)
        return (
            not (self.window.participants or heard or named) and self.transcript.roles_of(sources) <= _VOUCHED
        )

    def _home(self, kind: ScopeKind) -> Scope | None:
        """Return the scope of this kind; several users have no user scope, and facts no session scope."""
        return next((scope for scope in self.scopes if scope.kind == kind), None)

    def _full(self, scope: Scope, taken: Counter[str]) -> bool:
        most, together = self.most.get(scope.key), self.most_together
        return (most is not None and taken[scope.key] >= most) or (
            together is not None and taken.total() >= together
        )
