"""Webhooks, from a chat write to a receiver that checks the signature; nothing forgotten goes out."""

import asyncio
import hmac
import json
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from eden_memory.operations.webhook_calls import add_webhook, list_webhooks, remove_webhook
from eden_memory.processors import pipeline
from eden_memory.replay.dead_letters import DeadLetterHandling
from eden_memory.replay.installation import Installation
from eden_memory.schemas.documents import WebhookSubject
from eden_memory.settings import Settings
from eden_memory.webhooks import webhook_rules, webhook_sending
from eden_memory.webhooks.webhook_store import WAITING
from tests.integration.system.commands import kill, start
from tests.integration.system.running_system import AGENT, System, fast, stages, system, until
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
ALL: Sequence[WebhookSubject] = ("facts", "reflections", "forgotten")


@dataclass
class Receiver:
    """A program that is told; `answers` gives the status of a request, None: it never answers."""

    port: int = 0
    secret: str = ""
    answers: Callable[[], int | None] = lambda: 204
    came: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    """`webhook-id` and JSON of all requests."""
    answered: list[str] = field(default_factory=list[str])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/told?by=eden"

    def told(self, kind: str) -> list[Any]:
        return [body["data"] for _, body in self.came if body["type"] == f"memory.{kind}"]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
            body = await reader.readexactly(int(headers["content-length"]))
            assert first == "POST /told?by=eden HTTP/1.1"
            assert headers["host"] == f"127.0.0.1:{self.port}"
            named, at = headers["webhook-id"], headers["webhook-timestamp"]
            key = b64decode(self.secret.removeprefix("whsec_"))
            signed = hmac.digest(key, f"{named}.{at}.".encode() + body, sha256)
            assert headers["webhook-signature"] == f"v1,{b64encode(signed).decode()}"
            self.came.append((named, json.loads(body)))
            status = self.answers()
            if status is None:
                await asyncio.sleep(600)
            writer.write(f"HTTP/1.1 {status} Said\r\ncontent-length: 0\r\n\r\n".encode())
            await writer.drain()
            self.answered.append(named)
        finally:
            writer.close()


@asynccontextmanager
async def listening(receiver: Receiver) -> AsyncGenerator[Receiver]:
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", receiver.port)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()


@asynccontextmanager
async def told(
    running: System, on: Sequence[WebhookSubject] = ALL, **fields: Any
) -> AsyncGenerator[Receiver]:
    """A receiver that listens, and its webhook."""
    memory = running.service.memory
    async with listening(Receiver()) as receiver:
        added = await add_webhook(memory, receiver.url, on, allow_private=True, **fields)
        receiver.secret = added.secret
        try:
            yield receiver
        finally:
            await remove_webhook(memory, added.webhook.id)


@pytest.fixture(autouse=True)
def in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_rules, "FIRST_SECONDS", 0.1)
    monkeypatch.setattr(webhook_sending, "BRAKE_SECONDS", 0.05)


async def test_a_chat_write_is_told_and_forgetting_follows_while_another_receiver_never_answers(
    shared: System,
) -> None:
    async with (
        told(shared) as receiver,
        told(shared) as stuck,
        told(shared, agents=["another"]) as foreign,
        told(shared, ["forgotten"]) as sparing,
    ):
        stuck.answers = lambda: None
        session = await shared.session("ada")
        await shared.told(session, "ada", "fact user: Ada keeps a tortoise.", "note user: Ada likes it slow.")
        await until(
            lambda: {one["kind"] for one in receiver.told("changed")} == {"fact", "reflection"}, "told"
        )
        row = await shared.memory("facts").find_one({"content": {"$regex": "tortoise"}})
        fact = next(one for one in receiver.told("changed") if one["kind"] == "fact")
        assert fact == {
            "kind": "fact",
            "id": row["_id"],
            "version": 1,
            "scope": f"user:s.{AGENT}:s.ada",
            "retired": False,
        }
        assert "tortoise" not in json.dumps([body for _, body in receiver.came])
        await until(lambda: stuck.came, "the receiver that never answers")
        (listed,) = (one for one in await list_webhooks(shared.service.memory) if one.url == stuck.url)
        assert listed.waiting >= 1
        assert foreign.came == sparing.came == []

        await shared.forget("user", "ada")
        wanted = {one["id"] for one in receiver.told("changed")}
        await until(lambda: {one["id"] for one in receiver.told("forgotten")} >= wanted, "forgotten follows")
        await until(
            lambda: {one["id"] for one in sparing.told("forgotten")} >= wanted, "to whoever asks only for it"
        )
        assert all(one.keys() == {"kind", "id"} for one in receiver.told("forgotten"))
        assert not sparing.told("changed")
        first = {name: body["type"] for name, body in receiver.came}
        assert len(first) == len(receiver.came), "nothing came twice"
        assert foreign.came == []
        counting = {"find": shared.memory("webhook_notices").name, "filter": WAITING}
        how = await shared.database.command("explain", counting, verbosity="executionStats")
        read = how["executionStats"]
        assert read["totalDocsExamined"] == read["nReturned"], (
            "those that are taken are not read to count others"
        )


async def test_what_a_receiver_does_not_take_comes_again_with_its_id_and_is_then_a_dead_letter(
    shared: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with told(shared, ["facts"]) as receiver:
        receiver.answers = lambda: 503 if len(receiver.came) < 3 else 200
        session = await shared.session("bo")
        await shared.told(session, "bo", "fact user: Bo rows at dawn.")
        await until(lambda: receiver.answered[2:], "it is taken at the third attempt")
        assert len({named for named, _ in receiver.came}) == 1

        receiver.answers = lambda: 301
        await shared.told(session, "bo", "fact user: Bo mends nets.")
        await until(lambda: receiver.answered[3:], "it is tried")
        monkeypatch.setattr(webhook_sending, "TRIED_FOR", type(webhook_sending.TRIED_FOR)(seconds=0))
        letters = DeadLetterHandling(Installation(shared.settings, shared.database))
        wanted = letters.filter(None, "webhooks", None, None, None)

        async def found() -> list[Any]:
            return [letter async for letter in letters.found(wanted)]

        await until(found, "a dead letter")
        monkeypatch.undo()
        receiver.answers = lambda: 200
        (letter,) = await found()
        assert "status 301" in letter.reason
        assert receiver.url not in letter.model_dump_json()
        before = len(receiver.came)
        assert await letters.retry([letter], "a test") == ["asked"]
        await until(lambda: receiver.came[before:], "tried again")
        assert receiver.came[before][0] == receiver.came[before - 1][0]
        await until(lambda: _no(found()), "the letter is settled")


async def test_what_is_forgotten_before_its_receiver_answers_is_never_told(shared: System) -> None:
    async with told(shared, ["facts"]) as receiver:
        pass
    memory = shared.service.memory
    added = await add_webhook(memory, receiver.url, ["facts"], allow_private=True)
    receiver.secret = added.secret
    session = await shared.session("cy")
    await shared.told(session, "cy", "fact user: Cy hides the key under a stone.")

    async def tried() -> bool:
        (one,) = await list_webhooks(memory)
        return one.waiting == 1 and one.failure == "ConnectError"

    await until(tried, "nobody listens")
    await shared.forget("user", "cy")

    async def forgotten() -> bool:
        rows = await shared.memory("webhook_notices").find({"webhook_id": added.webhook.id}).to_list()
        return {row["type"] for row in rows} == {"memory.forgotten"}

    await until(forgotten, "the change is not to be sent any more")
    async with listening(receiver):
        await until(lambda: receiver.told("forgotten"), "forgotten follows what may have arrived")
    assert not receiver.told("changed")
    await remove_webhook(memory, added.webhook.id)


async def test_killed_between_sending_and_noting_it_the_same_notice_comes_again(
    settings: Settings, shared_models: Serving, tmp_path: Path
) -> None:
    quick, log = fast(settings, shared_models), tmp_path / "eden.log"
    forming = [name for name in pipeline.NAMES if name != pipeline.WEBHOOKS]
    async with system(quick, shared_models, run=False) as running, stages(quick, forming):
        async with told(running, ["facts"]) as receiver:
            receiver.answers = lambda: None
            session = await running.session("di")
            await running.told(session, "di", "fact user: Di sails on Mondays.")
            process = await start(quick, log, "run", "webhooks")
            try:
                await until(lambda: receiver.came, "it is sent")
            finally:
                await kill(process)
            receiver.answers = lambda: 200
            process = await start(quick, log, "run", "webhooks")
            try:
                await until(lambda: receiver.answered, "it is sent again")
            finally:
                await kill(process)
            assert len(receiver.came) >= 2
            assert len({named for named, _ in receiver.came}) == 1
        assert receiver.secret not in log.read_text()


async def _no(found: Any) -> bool:
    return not await found
