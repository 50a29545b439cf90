"""The hits say what they rest on, `memory_top_k: 0` adds nothing, and /health answers."""

from datetime import datetime, timedelta
from typing import Any

import httpx2
import orjson
import pytest
from bson import ObjectId

from eden_memory.api.http.serving import create_app
from eden_memory.api.service import Memory
from eden_memory.mongo.ids import encode_id
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from tests.integration.gateway.gateway_kit import Chats, behind, chats_of, turns
from tests.integration.mcp.stored import remember
from tests.integration.python.stored import AT, source
from tests.model_server.chat_upstream import ChatUpstream, served

pytestmark = pytest.mark.servers


async def rests_on(chats: Chats, fact_id: str, **said: tuple[str, datetime]) -> None:
    """Give a fact its sources, by message: role and time."""
    sources = [
        source("s.u", message=f"s.{name}").model_copy(update={"said_at": at}).model_dump()
        for name, (_, at) in said.items()
    ]
    await chats.kit.database["memory_facts"].update_one({"_id": fact_id}, {"$set": {"sources": sources}})
    rows = [{"_id": f"s.{name}", "role": role} for name, (role, _) in said.items()]
    await chats.kit.database["memory_messages"].insert_many(rows)


async def test_a_hit_has_the_role_and_time_of_the_newest_message_that_it_rests_on(
    own_settings: Settings, provider: ChatUpstream, session: str, user: str
) -> None:
    searching = behind(own_settings, provider.openai_url).model_copy(update={"memory": own_settings.memory})
    async with chats_of(searching, provider) as chats:
        scope = Scope.of_user("s.default", encode_id(user))
        await remember(chats.kit, scope, "Ann keeps nine bees.", "Ann sells honey from her bees.")
        later = AT + timedelta(days=2)
        stated = {f"{user}-old": ("user", AT), f"{user}-new": ("tool", later)}
        await rests_on(chats, f"user-{scope.user_id}-0", **stated)
        said = await chats.say("How many bees does Ann keep?", memory_id=session, user=user)
        hits = {hit["content"]: hit for hit in said.model_extra["memory_hits"]}
        bees, honey = hits["Ann keeps nine bees."], hits["Ann sells honey from her bees."]
        assert (bees["role"], datetime.fromisoformat(bees["created_at"])) == ("tool", later)
        assert (honey["role"], honey["created_at"]) == (None, honey["said_at"])


async def test_without_hits_asked_for_the_request_stays_as_it_is_and_is_stored(
    chats: Chats, session: str, user: str
) -> None:
    await chats.remembers(user, "Likes tables.", "Ann keeps nine bees.")
    plain = b'{"model":"m","messages":[ {"role":"user", "content":"My bees?"}],"user":"%s"' % user.encode()
    answer = await chats.post(plain + b',"memory_id":"%s","memory_top_k":0}' % session.encode())
    assert chats.came.raw == plain + b"}"
    assert "memory_hits" not in answer.json()
    assert await chats.stored(session) == [("user", "My bees?"), ("assistant", "Hello there.")]
    plainly = await chats.post(orjson.dumps({"model": "m", "messages": turns("My bees?"), "user": user}))
    assert "Likes tables." in chats.came.raw.decode()
    assert "memory_hits" not in plainly.json(), "no field of memory's own asks for them"


@pytest.mark.parametrize(("setting", "expected"), [({}, True), ({"memory_hits": False}, False)])
async def test_hits_are_told_where_memory_is_named_and_they_are_wanted(
    own_settings: Settings, provider: ChatUpstream, session: str, setting: dict[str, Any], expected: bool
) -> None:
    async with chats_of(behind(own_settings, provider.openai_url, **setting), provider) as chats:
        for stream in (False, True):
            body = {"model": "m", "messages": turns("Hi"), "memory_id": session, "stream": stream}
            assert ('"memory_hits":[' in (await chats.post(orjson.dumps(body))).text) is expected


async def test_an_agent_whose_id_is_typed_in_the_settings_is_that_agent(
    own_settings: Settings, provider: ChatUpstream, user: str
) -> None:
    agent = ObjectId()
    agents = own_settings.agents.model_copy(update={"default": f"o.{agent}"})
    own = behind(own_settings.model_copy(update={"agents": agents}), provider.openai_url)
    async with chats_of(own, provider) as chats:
        scope = Scope.of_user(encode_id(agent), encode_id(user))
        await chats.kit.put(scope, blob="Likes tables.")
        await chats.say("My bees?", user=user)
        assert "Likes tables." in chats.came.raw.decode()


async def test_health_answers_whoever_asks_and_says_whether_there_is_a_provider(
    chats: Chats, own_settings: Settings
) -> None:
    async with httpx2.AsyncClient() as client:
        alone = await client.get(f"{chats.url}/health")
        shown = alone.json()
        assert (alone.status_code, shown["status"]) == (200, "ok")
        assert (shown["configuration"]["placement"], shown["configuration"]["single_user"]) == (
            "split",
            False,
        )
        secret = behind(own_settings, "http://u:secret@127.0.0.1:1/secret?secret", single_user="secret")
        async with chats_of(secret, chats.upstream) as others:
            shown = (await client.get(f"{others.url}/health")).json()["configuration"]
            assert (shown["upstream"], shown["single_user"]) == ("http://127.0.0.1:1", True)
            assert "secret" not in str(shown)
        async with (
            Memory(own_settings) as memory,
            served(create_app(memory), lifespan=True) as url,
        ):
            unset = await client.get(f"{url}/health")
            assert unset.status_code == 503
            assert "EDEN_GATEWAY_UPSTREAM" in unset.json()["detail"]
    assert not chats.upstream.came
