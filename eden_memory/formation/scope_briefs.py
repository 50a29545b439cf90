"""Scopes in the questions of the two extractions: limits, briefs, on whose behalf they ask. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from eden_memory.forgotten import Marks
from eden_memory.formation.prompt_material import DatedText, ScopeBrief
from eden_memory.formation.prompts import one_line
from eden_memory.limits import STANDARD, FormationLimits, ScopeLimits, label_of, limits_of
from eden_memory.memory.snapshot_projection import newest_buffered
from eden_memory.schemas.answers import StatedReflections
from eden_memory.schemas.documents import Snapshot, Stream
from eden_memory.schemas.events.formation import Window
from eden_memory.schemas.scopes import Scope

OF_THEMSELVES = (
    "Here: what one person says of themself, resting on that person's messages alone; it is kept for them"
)


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
        of_authors: bool = False,
    ) -> "Scopes":
        """Return the scopes with their limits, an agent's streams taken into account."""
        return cls({scope: limits_of(scope, streams, of_all) for scope in scopes}, of_all, of_authors)

    @property
    def all(self) -> tuple[Scope, ...]:
        """The scopes, from broad to narrow."""
        return tuple(self.limits)

    @property
    def model(self) -> str | None:
        """The model that the broadest scope with a wish of its own asks for: one call serves them all."""
        named = (limits.extraction_model for limits in self.limits.values())
        return next(filter(None, named), None)

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
            ScopeBrief(label_of(scope), self._guidance(scope), 0, self.of_all.facts, words=limits.item_words)
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


def too_few(answer: StatedReflections, scopes: Iterable[ScopeBrief]) -> str | None:
    """Return the complaint about scopes of which an answer states fewer reflections than wanted; None: of none."""
    stated = Counter(one_line(item.scope) for item in answer.reflections if item.text.strip())
    short = [
        f"{brief.label} has {stated[one_line(brief.label)]}, wanted are at least {brief.least}"
        for brief in scopes
        if stated[one_line(brief.label)] < brief.least
    ]
    return None if not short else f"Too few reflections: {'; '.join(short)}. Keep the others; invent nothing."


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
    return replace(brief, blob=shot.blob, blob_said_at=shot.blob_said_at, buffer=shown)
