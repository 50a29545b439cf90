"""LangGraph: memory as a `BaseStore`, and a node that reads the context (extra `langgraph`)."""

import asyncio
import operator
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, cast

from eden_memory.adapters.conversation import ConversationMemory
from eden_memory.api.service import Memory, MemoryService
from eden_memory.directory.id_reader_store import IdKind
from eden_memory.errors import Invalid, NotFound, needs_extra
from eden_memory.limits import MOST_FOUND, MOST_LISTED
from eden_memory.memory.memory_views import FactView
from eden_memory.mongo.ids import TYPED, raw
from eden_memory.schemas.scopes import ScopeKind
from eden_memory.search.search_requests import FoundFact

with needs_extra("eden_memory.adapters.langgraph", "langgraph"):
    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import RunnableConfig
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        Item,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        TTLConfig,
    )

TEXT = "text"
OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
Namespace = tuple[str, ...]


class EdenStore(BaseStore):
    """Facts as items: the namespace is `("user", USER)`, or `("agent",)` for what all users of the agent share.
    A user whose id is no text, or has a dot, which LangGraph refuses, is named by its type and its text,
    percent-encoded: `("user", "o", OBJECTID)`, `("user", "i", "5")`, `("user", "s", "ann@example%2Ecom")`.

    A value is `{"text": …}`; items also have `said_at`, `occurred_at` and `version`, and `search` filters by these
    four. Keys are ids of facts: `put` with the key of a fact changes its text; any other key adds a text word for
    word, under an id of its own. Deleting retires a fact. With a `ttl` (minutes) a fact retires by itself that long
    after the `put`; one without keeps the time that the fact has, and reading prolongs nothing. Changes are carried
    out in the background by `eden run`, a moment later.
    """

    supports_ttl = True
    ttl_config = TTLConfig(refresh_on_read=False)

    def __init__(self, service: MemoryService) -> None:
        self._service, self._loop = service, asyncio.get_running_loop()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Wait for :meth:`abatch`, from another thread than that of the event loop."""
        return asyncio.run_coroutine_threadsafe(self.abatch(ops), self._loop).result()

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out the operations, one after the other."""
        return [await self._carry_out(op) for op in ops]

    async def _carry_out(self, op: Op) -> Result:
        match op:
            case GetOp():
                return await self._get(op)
            case SearchOp():
                return await self._search(op)
            case PutOp():
                return await self._put(op)
            case _:
                raise Invalid("memory does not list namespaces", "Your application knows its users.")

    async def _get(self, op: GetOp) -> Item | None:
        fact = await self._fact(op.namespace, op.key)
        return None if fact is None or not self._holds(fact) else Item(**_fields(op.namespace, fact))

    async def _fact(self, namespace: Namespace, key: str) -> FactView | None:
        user = _user(namespace)
        try:
            fact = (await self._service.history(key, user=user)).fact
        except NotFound:
            return None
        return fact if fact.scope.kind == _kind(user) else None

    def _holds(self, fact: FactView) -> bool:
        """Whether a fact is active; one whose time has come is retired a moment later."""
        return fact.active and (fact.expires_at is None or fact.expires_at > self._service.memory.clock())

    async def _search(self, op: SearchOp) -> list[SearchItem]:
        user, last, found = _user(op.namespace_prefix), op.offset + op.limit, list[SearchItem]()
        kinds: tuple[ScopeKind, ...] = (_kind(user),)
        wanted = op.filter or {}
        if op.query is not None:
            most = min(MOST_FOUND, last) if not wanted else MOST_FOUND
            for fact in await self._service.search_facts(op.query, user=user, scopes=kinds, top_k=most):
                found.append(SearchItem(**_fields(op.namespace_prefix, fact), score=fact.score))
            return [item for item in found if _matches(item.value, wanted)][op.offset : last]
        cursor: str | None = None
        limit = MOST_LISTED if wanted else min(last, MOST_LISTED)
        while len(found) < last:
            page = await self._service.list_facts(user=user, scopes=kinds, limit=limit, cursor=cursor)
            items = (
                SearchItem(**_fields(op.namespace_prefix, fact)) for fact in page.items if self._holds(fact)
            )
            found += (item for item in items if _matches(item.value, wanted))
            cursor = page.cursor
            if cursor is None:
                break
        return found[op.offset : last]

    async def _put(self, op: PutOp) -> None:
        user, clock = _user(op.namespace), self._service.memory.clock
        until = None if op.ttl is None else clock() + timedelta(minutes=op.ttl)
        known = await self._fact(op.namespace, op.key)
        if known is None and op.value is not None:
            await self._service.add(_text(op.value), user=user, verbatim=True, expires_at=until)
        elif op.value is not None:
            await self._service.edit(op.key, _text(op.value), user=user, expires_at=until)
        elif known is not None and known.active:
            await self._service.retire(op.key, user=user)


def _matches(value: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a value has what a filter asks for: equal values, or operators of LangGraph."""
    return all(_compares(value.get(name), asked) for name, asked in wanted.items())


def _compares(found: Any, asked: Any) -> bool:
    if not isinstance(asked, Mapping):
        return _comparable(found) == _comparable(asked)
    operators = cast(Mapping[str, Any], asked)
    if unknown := operators.keys() - OPERATORS.keys():
        raise Invalid(f"a filter has no {', '.join(sorted(unknown))}", f"Use {', '.join(OPERATORS)}.")
    return all(_applies(name, _comparable(found), _comparable(given)) for name, given in operators.items())


def _applies(name: str, found: Any, given: Any) -> bool:
    """Compare numbers with numbers, times with times and texts with texts; others have no order."""
    if name not in ("$eq", "$ne") and type(found) is not type(given):
        return False
    return OPERATORS[name](found, given)


def _comparable(value: Any) -> Any:
    """Return a number as a float, and a time, or a text that is one, as a time."""
    if isinstance(value, str):
        with suppress(ValueError):
            value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return float(value) if isinstance(value, int) else value


def context_node(
    memory: Memory, agent: Any = "default", *, into: str = "memory"
) -> Callable[[Mapping[str, Any], RunnableConfig], Awaitable[dict[str, str]]]:
    """Return a node that writes the context, as XML for the system prompt, into a field of the state.

    The session is the run's `thread_id`, the user its `user_id` (`config["configurable"]`); a text is read by the
    type that the application's field holds, and never as a typed id. The last message recalls.
    """

    async def read_context(state: Mapping[str, Any], config: RunnableConfig) -> dict[str, str]:
        whose = config.get("configurable", {})
        if "thread_id" not in whose:
            raise Invalid("a run names no session", 'Set "thread_id" in its configuration.')
        session, user = [await _id(memory, kind, whose.get(name)) for kind, name in RUN]
        read = ConversationMemory(memory.agent(await _id(memory, "agent", agent)), session, user)
        return {into: await read.context(_last_text(state.get("messages", ())))}

    return read_context


RUN: Sequence[tuple[IdKind, str]] = (("session", "thread_id"), ("user", "user_id"))
"""Ids in a run's configuration."""


async def _id(memory: Memory, kind: IdKind, given: Any) -> Any:
    """Return the application's id behind a text of a run, which is often its only form.

    A text that looks typed (`s.mith@example.com`) is the application's own: applications know no typed ids.
    """
    if not isinstance(given, str) or not given or TYPED.match(given):
        return given
    return await memory.ids.read(kind, given)


def _user(namespace: Namespace) -> Any:
    match namespace:
        case ("user", user):
            return user
        case ("user", kind, text):
            return raw(f"{kind}.{text}", "user")
        case ("agent",):
            return None
        case _:
            raise Invalid(
                'a namespace of memory is ("user", USER), ("user", TYPE, ID) or ("agent",)',
                "Use one of these.",
            )


def _kind(user: Any) -> Literal["user", "agent"]:
    return "agent" if user is None else "user"


def _text(value: Mapping[str, Any]) -> str:
    text = value.get(TEXT)
    if not isinstance(text, str):
        raise Invalid('a value of memory is {"text": "…"}', "Give the text to remember.")
    return text


def _fields(namespace: Namespace, fact: FactView | FoundFact) -> dict[str, Any]:
    said_at, occurred_at = fact.valid_from, fact.occurred_at
    return {
        "namespace": namespace,
        "key": fact.fact_id,
        "value": {
            TEXT: fact.content,
            "said_at": said_at.isoformat(),
            "occurred_at": None if occurred_at is None else occurred_at.isoformat(),
            "version": fact.version,
        },
        "created_at": fact.formed_at,
        "updated_at": said_at,
    }


def _last_text(messages: Sequence[BaseMessage]) -> str | None:
    return messages[-1].text if messages and messages[-1].type == "human" else None
