"""A gateway on real MongoDB before the tests' provider, and OpenAI's own client in front of it."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
from fastapi import FastAPI
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from eden_memory.access.admission_store import ApiKeys
from eden_memory.api.gateway.gateway import Gateway, gateway_router
from eden_memory.api.service import Memory
from eden_memory.mongo.client import connect
from eden_memory.mongo.ids import decode_id, encode_id
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import GatewaySettings, Settings
from eden_memory.source.messages_store import inbox_name
from tests.integration.context.harness import Kit, fact, reflection
from tests.model_server.chat_upstream import Came, ChatUpstream, Reply, served

CALLERS_KEY = "sk-the-callers-own"
Row = dict[str, Any]


class Chats:
    """One namespace: the provider, the gateway before it, and the database."""

    def __init__(self, settings: Settings, upstream: ChatUpstream, kit: Kit) -> None:
        self.settings, self.upstream, self.kit = settings, upstream, kit
        self.keys = ApiKeys(kit.database, settings.names)
        self.url = ""
        self.gateway: Gateway
        self.memory: Memory

    @property
    def came(self) -> Came:
        """The newest request at the provider."""
        return self.upstream.came[-1]

    def client(self, key: str | None = None, **more: Any) -> AsyncOpenAI:
        """OpenAI's client, with a key of ours or without; it reads no certificates, which takes 50 ms of the loop."""
        headers = {"X-Eden-Key": key} if key is not None else {}
        given: Row = {"base_url": f"{self.url}/v1", "api_key": CALLERS_KEY, "max_retries": 0}
        given["http_client"] = DefaultAsyncHttpxClient(verify=False)
        return AsyncOpenAI(**(given | more), default_headers=headers)

    async def say(self, *texts: str, key: str | None = None, **fields: Any) -> Any:
        """One chat of alternating turns, the last of them the user's; the completion."""
        async with self.client(key) as client:
            return await client.chat.completions.create(
                model="m", messages=turns(*texts), extra_body=fields or None
            )

    async def stored(self, session: Any) -> list[tuple[str, str]]:
        """(role, content) of a session's messages in the order of their times."""
        return [(row["role"], row["content"]) for row in await self.rows(session)]

    async def rows(self, session: Any) -> list[Row]:
        """A session's turns that wait in the inbox or are recorded, and neither deleted nor forgotten."""
        await self.gateway.keeping.idle()
        waiting = await self.kit.database[inbox_name(self.settings)].find({"session_id": session}).to_list()
        gone = {"$nin": [True]}
        query = {"session_id": encode_id(session), "deleted": gone, "forgotten": gone}
        recorded = await self.kit.database[self.settings.names["messages"]].find(query).to_list()
        rows = {row["_id"]: row for row in waiting if row["kind"] == "added_text"}
        rows |= {str(decode_id(row["_id"])): row for row in recorded}
        said = [row | {"_id": name, "content": row["text"]} for name, row in rows.items()]
        return sorted(said, key=lambda row: row["created_at"])

    def as_restarted(self) -> None:
        """Have the gateway know of its turns only what is stored."""
        self.gateway.keeping._store._written.clear()  # pyright: ignore[reportPrivateUsage]

    async def remembers(self, user: str, blob: str, *facts: str, agent: str = "default") -> None:
        """What the writer would have stored of a user."""
        scope = Scope.of_user(encode_id(agent), encode_id(user))
        await self.kit.put(scope, blob=blob, recent_facts=tuple(fact(one) for one in facts))

    async def remembers_session(self, session: str, users: Sequence[str], text: str) -> None:
        """The memory of a session with these users."""
        scope = Scope.of_session("s.default", encode_id(session), tuple(encode_id(one) for one in users))
        await self.kit.put(scope, buffer=(reflection(text),))

    async def post(self, content: bytes, **headers: str) -> httpx2.Response:
        """A request as it is."""
        async with httpx2.AsyncClient() as client:
            return await client.post(f"{self.url}/v1/chat/completions", content=content, headers=headers)


def turns(*texts: str) -> list[Any]:
    """User and assistant by turns; the last is the user's."""
    roles = ("user", "assistant")
    return [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]


def says(*tokens: str, **more: Any) -> Any:
    """Tokens for `upstream.reply`."""
    return replies(Reply(tokens, **more))


def replies(*each: Reply) -> Any:
    """Replies for `upstream.reply`, one after the other; the last of them for ever."""
    left = list(each)

    def reply(body: Row) -> Reply:
        return left.pop(0) if len(left) > 1 else left[0]

    return reply


def behind(settings: Settings, upstream: str, agent: str | None = None, **gateway: Any) -> Settings:
    """The settings with the gateway before a provider, and nothing to embed with; memory is waited for."""
    fields = {"upstream": upstream, "memory_seconds": 60.0, **gateway}
    default = settings.agents.default if agent is None else encode_id(agent)
    return settings.model_copy(
        update={
            "gateway": GatewaySettings.model_validate({**settings.gateway.model_dump(), **fields}),
            "agents": settings.agents.model_copy(update={"default": default}),
            "memory": settings.memory.model_copy(update={"recall": "off"}),
        }
    )


def running(settings: Settings, upstream: str, **gateway: Any) -> Settings:
    """As it comes (rules and the local embedder), but for short waits."""
    changes: dict[str, dict[str, Any]] = {
        "kafka": {"partitions": 2},
        "tailer": {"watermark_seconds": 0.5, "commit_seconds": 1.0},
        "run": {"drain_seconds": 5.0},
        "gateway": {"upstream": upstream, "memory_seconds": 20.0, **gateway},
    }
    updates = {name: getattr(settings, name).model_copy(update=of) for name, of in changes.items()}
    return settings.model_copy(update=updates)


@asynccontextmanager
async def chats_of(settings: Settings, upstream: ChatUpstream) -> AsyncGenerator[Chats]:
    """A gateway with these settings, served."""
    assert settings.mongodb.uri is not None
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connect(settings.mongodb.uri.get_secret_value()))
        memory = await stack.enter_async_context(Memory(settings, client=client))
        chats = Chats(settings, upstream, Kit(settings, client))
        chats.memory, chats.gateway = memory, Gateway(memory, chats.keys, settings)
        app = FastAPI(openapi_url=None)
        app.include_router(gateway_router(chats.gateway))
        chats.url = await stack.enter_async_context(served(app, lifespan=True))
        yield chats
