"""The question of both extractions about a window: its transcript, its scopes, and on whose behalf it asks."""

from asyncio import gather
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import Protocol

from eden_memory.access.visible import WIDE
from eden_memory.directory.participants import Streams
from eden_memory.errors import PermanentError
from eden_memory.forgotten import ForgottenMarks, Marks, ids_of_window
from eden_memory.formation.scope_assignment import (
    SHARED_ROLES,
    ScopeAssignment,
    Scopes,
    SharingChecks,
    of_authors,
)
from eden_memory.formation.transcript import Transcript, transcript
from eden_memory.limits import FormationLimits
from eden_memory.models.question import A, Answered, Asking, LanguageModel, Role
from eden_memory.schemas.events.formation import Window
from eden_memory.schemas.ids import split
from eden_memory.schemas.provenance import Call, MessageRef
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.stage import Delivery
from eden_memory.windows.formation_requests import StoredWindow, Windows


@dataclass(frozen=True, slots=True)
class TakenBack:
    """A statement that a person took out of shared memory, and whose words it rests on."""

    text: str
    users: frozenset[str]


@dataclass(frozen=True, slots=True)
class SharedKnowledge:
    """What an agent's shared memory is checked by."""

    names: frozenset[str] = frozenset()
    """What the agent's users are called."""
    given: tuple[str, ...] = ()
    """What the operator added for all users, or pinned."""
    taken_back: tuple[TakenBack, ...] = ()
    """The newest first."""


class SharingRules(Protocol):
    """What the extractions ask before they share what users said."""

    async def known(self, agent_id: str) -> SharedKnowledge:
        """Return what an agent's shared memory is checked by."""
        ...

    async def may_judge(self, provider: str | None, call: Call) -> bool:
        """Return whether the model of a call passed `eden models check` with the prompt of the call."""
        ...


@dataclass(frozen=True, slots=True)
class WindowQuestion:
    """A window with everything that a question about it needs."""

    delivery: Delivery
    window: Window
    asking: Asking
    scopes: Scopes
    transcript: Transcript
    names: tuple[str, ...]
    """People whose names leave what others see; empty unless the stricter setting is on."""
    marks: Marks
    called: frozenset[str]
    """The names and ids of those who take part."""
    known: SharedKnowledge
    shared_roles: Set[str] = SHARED_ROLES

    @property
    def taken_back(self) -> tuple[str, ...]:
        """Return what a person took out of shared memory, of those who take part here and nobody else."""
        users = frozenset(self.window.participants)
        return tuple(old.text for old in self.known.taken_back if old.users and old.users == users)

    def assignment(
        self,
        item_words: int,
        fence: str,
        judge: bool,
        most_together: int | None = None,
        *,
        limited: bool = False,
    ) -> ScopeAssignment:
        """Return the assignment of an answer's items; `limited`: to each scope's own number of items."""
        most = {scope.key: limits.most for scope, limits in self.scopes.limits.items()} if limited else {}
        return ScopeAssignment(
            self.window,
            self.transcript,
            self.scopes.all,
            self.scopes.words(item_words),
            fence,
            most,
            most_together,
            self.names,
            self.shared_roles,
            SharingChecks(
                self.called | self.known.names,
                judge,
                self.known.given,
                tuple(old.text for old in self.known.taken_back),
            ),
        )


class WindowQuestions:
    """Reads windows and prepares the questions about them; `demote_names` as WindowQuestion's `names`."""

    def __init__(
        self,
        windows: Windows,
        streams: Streams,
        model: LanguageModel,
        forgetting: ForgottenMarks,
        limits: FormationLimits,
        sharing: SharingRules,
        *,
        demote_names: bool,
        shared_roles: Set[str],
    ) -> None:
        self._windows, self._streams, self._model = windows, streams, model
        self._forgetting, self._limits, self._demote_names = forgetting, limits, demote_names
        self._sharing, self._shared_roles = sharing, shared_roles

    async def about(
        self,
        delivery: Delivery,
        window: Window,
        scopes: tuple[Scope, ...],
        asking: Asking,
        known: Set[tuple[str, str]] = frozenset(),
        before: Sequence[MessageRef] = (),
    ) -> WindowQuestion:
        """Return the question; `known`: (kind, target) of other memories that it shows, `before`: messages."""
        windows, streams, earlier, shared = await gather(
            self._windows.windows([window.formation_id]),
            self._streams.of(window.agent_id),
            self._model.earlier(asking.unit),
            self._known(window, scopes),
        )
        stored = windows.get(window.formation_id)
        if stored is None:
            raise PermanentError("the texts of the window are kept no longer")
        authors = {("user", message.user_id) for message in stored.before if message.user_id is not None}
        marks = await self._forgetting.among(ids_of_window(window) | authors | known)
        shown = transcript(stored, window, marks, earlier.shown if earlier else (), before)
        limited = Scopes.of(scopes, streams, self._limits, of_authors=of_authors(window))
        asking = replace(asking, shown=shown.shown, model=limited.model)
        names = _participants(stored, window) if self._demote_names else ()
        called = {*stored.names.values(), *shown.speakers_but(())} - {stored.names.get(window.agent_id)}
        called |= {split(user)[1] for user in window.participants}
        return WindowQuestion(
            delivery,
            window,
            asking,
            limited,
            shown,
            names,
            marks,
            frozenset(filter(None, called)),
            shared,
            self._shared_roles,
        )

    async def _known(self, window: Window, scopes: Sequence[Scope]) -> SharedKnowledge:
        """Return what shared memory is checked by; nothing is read where no scope is offered that others see."""
        if not any(scope.kind in WIDE for scope in scopes):
            return SharedKnowledge()
        return await self._sharing.known(window.agent_id)

    async def may_judge(self, answered: Answered[A]) -> bool:
        """Return whether an answer's judgement may share what users said; the offline rules' may."""
        return answered.call is None or await self._sharing.may_judge(answered.provider, answered.call)


def asking_about(window: Window, delivery: Delivery, stage: str, role: Role) -> Asking:
    """Return a question about a window, without `shown` and `model`."""
    return replace(
        Asking.about(delivery, stage, role, window.agent_id),
        user_id=window.participants[0] if len(window.participants) == 1 else None,
        session_id=window.session_id,
        formation_id=window.formation_id,
        tier=window.tier,
    )


def shared_call(call: Call | None, items: int) -> Call | None:
    """Return the call behind an answer, whose cost so many items share."""
    return call and call.model_copy(update={"items": max(items, 1)})


def _participants(stored: StoredWindow, window: Window) -> tuple[str, ...]:
    return tuple(
        stored.names[participant] for participant in window.participants if participant in stored.names
    )
