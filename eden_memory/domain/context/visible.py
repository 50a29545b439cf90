"""Which memory one user of a session may be shown: from session to agent, and no user's to another. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from eden_memory.domain.context.context import Shown
from eden_memory.domain.limits import limits_of
from eden_memory.domain.windows.participants import generation_of
from schemas.documents import Snapshot, Stream
from schemas.scopes import Scope


@dataclass(frozen=True, slots=True)
class Present:
    """What the application says of a session at this moment; ids typed (schemas.ids)."""

    users: frozenset[str] | None
    """Its users; None: the session is not known (yet), and nobody's own memory is shown in it."""
    group_id: str | None = None
    user_memory: bool = True
    agent_memory: bool = True
    off: bool = False
    """The session is switched off (`memory: false`, `incognito`): nothing personal is shown."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Whose context is asked for; `user_id` None: nobody's in particular."""

    agent_id: str
    session_id: str | None
    """None: outside of any session."""
    user_id: str | None = None


@dataclass(frozen=True, slots=True)
class View:
    """What one user of a session may be shown, as it is stored at this moment."""

    shown: tuple[Shown, ...]
    """The visible scopes of which something is stored."""
    scope_keys: tuple[str, ...]
    """All visible scopes, those with nothing stored included: what changes in them changes the context."""
    present: bool = True
    """Whether the user is in the session, as far as is known."""

    @property
    def revisions(self) -> dict[str, int]:
        """Scope key → revision of what is shown of it."""
        return {one.scope.key: one.snapshot.revision for one in self.shown}


def view_of(
    asked: Asked, present: Present, streams: Mapping[str, Stream], stored: Mapping[str, Snapshot]
) -> View:
    """The view, out of snapshots by scope key that hold those of the visible scopes and of the session."""
    scopes = broad_scopes(asked, present, streams)
    shown = [Shown(one, limits_of(one, streams), stored[one.key]) for one in scopes if one.key in stored]
    own = session_memory(asked, present, (one for one in stored.values() if one.scope == "session"))
    keys = [one.key for one in scopes]
    if own is not None:
        scope = Scope.of_key(own.scope_key, own.agent_id, own.audience)
        shown.append(Shown(scope, limits_of(scope, streams), own))
        keys.append(scope.key)
    gone = asked.user_id is not None and present.users is not None and asked.user_id not in present.users
    return View(tuple(shown), tuple(keys), present=not gone)


def broad_scopes(asked: Asked, present: Present, streams: Mapping[str, Stream]) -> tuple[Scope, ...]:
    """The visible scopes but the session's own, from broad to narrow; shards behind their agent.

    One who is not among the session's users sees what the agent knows, and neither the group's nor any
    user's; with more than one user in the session, no user's memory is visible to any of them.
    """
    agent, scopes = asked.agent_id, list[Scope]()
    users = present.users
    if present.agent_memory:
        scopes.append(Scope.of_agent(agent))
        shards = sorted(one.shard for one in streams.values() if one.shard is not None)
        scopes += [Scope.of_shard(agent, name) for name in shards]
        member = users is not None and (asked.user_id is None or asked.user_id in users)
        if present.group_id is not None and member:
            scopes.append(Scope.of_group(agent, present.group_id))
    alone = asked.user_id if asked.user_id is not None and users == frozenset((asked.user_id,)) else None
    if alone is not None and present.user_memory and not present.off:
        scopes.append(Scope.of_user(agent, alone))
    return tuple(scopes)


def session_memory(asked: Asked, present: Present, stored: Iterable[Snapshot]) -> Snapshot | None:
    """The one of a session's memories that all who are in it now may see, if there is one.

    `stored` are the snapshots of all generations of the session's memory.
    """
    if present.users is None or present.off or asked.session_id is None:
        return None
    own = [one for one in stored if one.agent_id == asked.agent_id and one.session_id == asked.session_id]
    own.sort(key=_generation)
    now = present.users | ({asked.user_id} if asked.user_id is not None else set[str]())
    audiences = [one.audience for one in own]
    if not now:  # nobody is in it: everybody would be among any audience
        return next((one for one in reversed(own) if not one.audience), None)
    generation, known = generation_of(sorted(now), audiences)
    return own[generation - 1] if len(known) == len(own) else None


def _generation(one: Snapshot) -> int:
    return Scope.of_key(one.scope_key, one.agent_id, one.audience).generation or 1
