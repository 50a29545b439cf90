"""Assignment of a model's facts and reflections to scopes, checked against what the model was shown."""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime

from eden_memory.access.visible import WIDE
from eden_memory.directory.participants import given_to_all
from eden_memory.forgotten import Marks
from eden_memory.formation.occurrence import occurrence
from eden_memory.formation.planted_memory import Provenance, planted_messages, provenance_of
from eden_memory.formation.scope_briefs import of_authors
from eden_memory.formation.shareable import adds_little, contradicts, is_personal, names_one_of
from eden_memory.formation.transcript import Transcript, renamed
from eden_memory.formation.unnamed_sources import with_unnamed
from eden_memory.limits import fitted, label_of
from eden_memory.redaction import without_unseen
from eden_memory.schemas.answers import StatedFact, StatedReflection
from eden_memory.schemas.events.formation import Window
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.scopes import NotShared, Scope, ScopeKind

SHARED_ROLES = frozenset({"user", "assistant", "system", "other"})
_VOUCHED = frozenset({"assistant", "system"})
"""Roles that speak for the agent: no user's words, and no tool's."""


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
    counts: Counter[str] = field(default_factory=Counter[str])
    """`beyond` a limit of items, `no_scope`, `personal` (dropped), `demoted`, `shortened`, `empty`,
    `whole_window`, `forgotten`, `unnamed` (somebody without a name), `planted` (dropped), `unshared` (demoted),
    `before` (said by messages before the window alone)."""
    _planted: frozenset[str] | None = field(default=None, init=False)

    def assign(
        self, stated: Sequence[StatedFact] | Sequence[StatedReflection], marks: Marks
    ) -> list[AssignedItem]:
        """Return the items that stand, in order; `marks` are those known once the answer was there."""
        assigned: list[AssignedItem] = []
        taken: Counter[str] = Counter()
        for statement in stated:
            only_before = self.transcript.only_before(statement.messages)
            self.counts["before"] += only_before
            item = None if only_before else self._item(statement, marks)
            if item is None:
                continue
            if self._full(item.scope, taken):
                self.counts["beyond"] += 1
                continue
            taken[item.scope.key] += 1
            assigned.append(item)
        self.counts["whole_window"] += sum(item.whole_window for item in assigned)
        self.counts["demoted"] += sum(item.demoted_from is not None for item in assigned)
        return assigned

    def _item(self, stated: StatedFact | StatedReflection, marks: Marks) -> AssignedItem | None:
        named = self._scope(stated.scope)
        if named is None:
            self.counts["no_scope"] += 1
            return None
        text = self._text(stated.text, self.words[named.key])
        named_sources, whole = self.transcript.resting_on(stated.messages)
        sources = with_unnamed(text, self.transcript, named_sources)
        provenance = self._provenance(text, sources)
        if not text or provenance.dropped:
            self.counts["planted" if text else "empty"] += 1
            return None
        scope, withheld = self._scope_for(named, stated, text, sources, whole=whole, provenance=provenance)
        if scope is None:
            self.counts["personal"] += 1
            if withheld is not None:
                self.dropped.append(withheld)
            return None
        text = self.transcript.unnamed(text, sources if scope.kind == "user" else ())
        if text is None:
            self.counts["unnamed"] += 1
            return None
        gone = any(marks.gone_in(self.window, source) for source in sources)
        if gone or marks.scope_gone(scope, self.window.closed_at):
            self.counts["forgotten"] += 1
            return None
        demoted = named.kind if scope.kind != named.kind else None
        self.counts["unshared"] += withheld in ("role", "planted")
        occurred = occurrence(stated.occurred_at, text) if isinstance(stated, StatedFact) else None
        return AssignedItem(text, scope, sources, whole, demoted, withheld, provenance.shared, occurred)

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
