"""Through the gateway nobody reaches what is another's: by key, id, header or field."""

from typing import Any
from uuid import uuid4

import httpx2
import orjson
import pytest
from openai import AuthenticationError, PermissionDeniedError

from eden_memory.settings import Settings
from tests.integration.gateway.gateway_kit import Chats, behind, chats_of, turns
from tests.model_server.chat_upstream import ChatUpstream

pytestmark = pytest.mark.servers
SECRET = "Keeps gold under the floor."


async def key_of(chats: Chats, *users: str, **more: object) -> str:
    given = {"users": [f"s.{one}" for one in users] or None, **more}
    return (await chats.keys.create(f"key-{uuid4().hex}", **given))[0]  # pyright: ignore[reportArgumentType]


async def test_a_key_of_one_user_gives_that_users_memory_and_no_others(
    chats: Chats, session: str, user: str
) -> None:
    await chats.remembers(user, SECRET)
    key, others = await key_of(chats, user), await key_of(chats, "mallory")
    await chats.say("Hi", key=key, memory_id=session, user=user)
    assert SECRET in chats.came.messages[0]["content"]
    assert chats.came.header("x-eden-key") is None
    chats.upstream.came.clear()
    for fields in (
        {"user": user},
        {"user": user, "memory_id": "own"},
        {"user": "mallory", "memory_id": session},
    ):
        with pytest.raises(PermissionDeniedError):
            await chats.say("Hi", key=others, **fields)
    await chats.say("Hi", key=others, memory_id=f"own-{session}")
    assert SECRET not in chats.came.raw.decode()
    assert len(chats.upstream.came) == 1


async def test_a_session_is_its_users_from_its_first_turn_on(chats: Chats, session: str, user: str) -> None:
    key, others = await key_of(chats, user), await key_of(chats, "mallory")
    await chats.say("My secret", key=key, memory_id=session, user=user)
    await chats.gateway.keeping.idle()
    with pytest.raises(PermissionDeniedError):
        await chats.say("And mine", key=others, memory_id=session, user="mallory")
    assert [text for _, text in await chats.stored(session)] == ["My secret", "Hello there."]


async def test_a_session_whose_authors_are_known_is_theirs(chats: Chats, session: str, user: str) -> None:
    await chats.kit.authors(session, user)
    await chats.remembers_session(session, [user], SECRET)
    with pytest.raises(PermissionDeniedError):
        await chats.say("Hi", key=await key_of(chats, "mallory"), memory_id=session, user="mallory")


async def test_a_session_that_the_application_began_a_moment_ago_is_its_authors(
    chats: Chats, session: str, user: str
) -> None:
    begun = {"session_id": session, "user_id": user, "role": "other", "content": "My secret"}
    await chats.kit.database["messages"].insert_one(dict(begun))
    with pytest.raises(PermissionDeniedError):
        await chats.say("And mine", key=await key_of(chats, "mallory"), memory_id=session, user="mallory")
    await chats.say("Mine", key=await key_of(chats, user), memory_id=session, user=user)
    await chats.say("Ours", key=await key_of(chats, user, "mallory"), memory_id=session, user="mallory")
    assert [text for role, text in await chats.stored(session) if role == "user"] == ["Mine", "Ours"]


async def test_ids_that_look_alike_stay_apart(chats: Chats, user: str) -> None:
    number = str(uuid4().int % 10**9)
    await chats.remembers(number, SECRET)
    await chats.say("Hi", memory_id=f"x-{user}", user=int(number))
    assert SECRET not in chats.came.raw.decode()
    key = await key_of(chats, number)
    with pytest.raises(PermissionDeniedError):
        await chats.say("Hi", key=key, memory_id=f"y-{user}", user=int(number))
    for odd in (f"{number}%00", f"{number}/../x", f"s.{number}", f" {number}"):
        with pytest.raises(PermissionDeniedError):
            await chats.say("Hi", key=key, memory_id=f"z-{user}", user=odd)


async def test_a_field_given_twice_counts_as_the_provider_would_read_it(
    chats: Chats, session: str, user: str
) -> None:
    await chats.remembers(user, SECRET)
    key = await key_of(chats, f"mallory-{session}")  # who has said nothing elsewhere
    body = orjson.dumps({"model": "m", "messages": turns("Hi")})[:-1]
    twice = body + b',"user":"mallory","memory_id":"%s","user":"%s"}' % (session.encode(), user.encode())
    assert (await chats.post(twice, **{"x-eden-key": key})).status_code == 403
    masked = body + b',"memory\\u005fid":"%s","\\u0075ser":"%s"}' % (session.encode(), user.encode())
    assert (await chats.post(masked, **{"x-eden-key": key})).status_code == 403
    assert not chats.upstream.came
    own = (
        body
        + b',"messages":[{"role":"user","content":"second"}],"memory\\u005fid":"own-%s"}' % session.encode()
    )
    assert (await chats.post(own, **{"x-eden-key": key})).status_code == 200
    assert chats.came.body == {"model": "m", "messages": turns("second")}


async def test_rights_decide_what_is_shown_and_what_is_kept(chats: Chats, session: str, user: str) -> None:
    await chats.remembers(user, SECRET)
    reads = await key_of(chats, user, rights=("read",))
    await chats.say("Hi", key=reads, memory_id=session, user=user)
    assert SECRET in chats.came.raw.decode()
    assert await chats.stored(session) == []
    writes = await key_of(chats, user, rights=("write",))
    await chats.say("Hi", key=writes, memory_id=session, user=user)
    assert SECRET not in chats.came.raw.decode()
    assert len(await chats.stored(session)) == 2


async def test_a_key_of_an_agent_sees_that_agents_memory(chats: Chats, session: str, user: str) -> None:
    await chats.remembers(user, SECRET, agent="other")
    await chats.say("Hi", memory_id=session, user=user)
    assert SECRET not in chats.came.raw.decode()
    key = await key_of(chats, user, agents=["s.other"])
    await chats.say("Hi", key=key, user=user)
    assert SECRET in chats.came.raw.decode()


async def test_an_unknown_or_revoked_key_is_turned_away_even_here(chats: Chats, user: str) -> None:
    key = await key_of(chats, user)
    for bad in ("eden_" + "x" * 43, "sk-other", ""):
        with pytest.raises(AuthenticationError):
            await chats.say("Hi", key=bad)
    await chats.keys.revoke((await chats.keys.list())[-1].name)
    with pytest.raises(AuthenticationError):
        await chats.say("Hi", key=key)
    assert not chats.upstream.came


@pytest.mark.parametrize("place", ["authorization", "x-api-key"])
async def test_a_key_of_ours_is_never_given_to_the_provider(chats: Chats, user: str, place: str) -> None:
    key = await key_of(chats, user)
    body = orjson.dumps({"model": "m", "messages": turns("Hi")})
    for more in ({}, {"x-eden-key": key}):
        assert (await chats.post(body, **{place: f"Bearer {key}"}, **more)).status_code == 401
    assert not chats.upstream.came


@pytest.mark.parametrize(
    "headers", [{"host": "evil.example"}, {"origin": "https://evil.example"}, {"origin": "null"}]
)
async def test_a_page_in_a_browser_here_gets_nothing_without_a_key(
    chats: Chats, headers: dict[str, str]
) -> None:
    body = orjson.dumps({"model": "m", "messages": turns("Hi"), "user": "ann"})
    assert (await chats.post(body, **headers)).status_code == 403
    assert not chats.upstream.came


async def test_where_keys_are_required_nobody_passes_without(
    own_settings: Settings, provider: ChatUpstream
) -> None:
    strict = behind(own_settings, provider.openai_url)
    strict = strict.model_copy(update={"serve": strict.serve.model_copy(update={"require_key": True})})
    provider.came.clear()
    async with chats_of(strict, provider) as chats:
        with pytest.raises(AuthenticationError):
            await chats.say("Hi")
        async with chats.client() as client:
            with pytest.raises(AuthenticationError):
                await client.models.list()
        await chats.say("Hi", key=await key_of(chats, "ann"))
    assert len(provider.came) == 1


async def test_no_request_chooses_the_provider(chats: Chats) -> None:
    body = orjson.dumps(
        {"model": "m", "messages": turns("Hi"), "base_url": "http://127.0.0.1:1", "upstream": "x"}
    )
    answer = await chats.post(
        body, **{"x-eden-upstream": "http://127.0.0.1:1", "x-forwarded-host": "127.0.0.1:1"}
    )
    assert answer.status_code == 200
    assert (chats.came.path, chats.came.header("host")) == ("/v1/chat/completions", chats.upstream.url[7:])


@pytest.mark.parametrize(
    "name",
    [
        "",
        "..",
        "../files",
        "%2e%2e/files",
        "a/%2E%2E/b",
        "a%2f..%2fb",
        "%252e%252e/x",
        "a%3Fb",
        "a%00",
        "%ff",
    ],
)
async def test_no_models_id_leads_to_another_path_of_the_provider(chats: Chats, name: str) -> None:
    chats.upstream.came.clear()
    address = httpx2.URL(chats.url).copy_with(raw_path=f"/v1/models/{name}".encode())
    async with httpx2.AsyncClient() as client:
        answer = await client.send(httpx2.Request("GET", address))
    assert answer.status_code in {400, 404}
    assert not chats.upstream.came


async def test_a_connection_header_takes_no_credentials_away(chats: Chats) -> None:
    body = orjson.dumps({"model": "m", "messages": turns("Hi")})
    headers = {
        "connection": "authorization, x-hop",
        "authorization": "Bearer mine",
        "x-hop": "1",
        "te": "trailers",
    }
    assert (await chats.post(body, **headers)).status_code == 200
    assert (chats.came.header("authorization"), chats.came.header("x-hop")) == ("Bearer mine", None)
    assert chats.came.header("te") is None


ENDINGS = ("", " ", "\x00", "%00", "/.", "?", "#", ":1", "\u200b")
STARTS = ("s.", "../", "user:default:", " ", "o.", "%73.")


def forms(victim: str) -> list[Any]:
    """An id written in every way, and what is no id at all."""
    texts = [victim + one for one in ENDINGS] + [one + victim for one in STARTS]
    return [*texts, {"$eq": victim}, {"$gt": ""}, {"$regex": ".*"}, [victim], None, True]


def attacks(session: str, user: str) -> list[tuple[bytes, dict[str, str]]]:
    """Requests of one who wants the victim's memory: ids, operators, fields twice, headers."""
    named = [(one, other) for one in forms(session) for other in (user, "mallory", None)]
    named += [(one, other) for one in ("own", None) for other in forms(user)]
    body = {"model": "m", "messages": turns("When?")}
    plain = [orjson.dumps({**body, "memory_id": one, "user": other}) for one, other in named]
    victim = b',"memory_id":"%s","user":"%s"' % (session.encode(), user.encode())
    own = b',"memory_id":"own","user":"mallory"'
    twice = [orjson.dumps(body)[:-1] + one + other + b"}" for one, other in ((victim, own), (own, victim))]
    headers = [{}, {"x-eden-user": user}, {"x-forwarded-for": "127.0.0.1"}, {"x_eden_key": "eden_x"}]
    return [(one, headers[n % len(headers)]) for n, one in enumerate([*plain, *twice])]


async def test_nothing_of_a_user_passes_over_a_generated_set_of_attacks(
    chats: Chats, session: str, user: str
) -> None:
    await chats.remembers(user, SECRET, SECRET)
    await chats.remembers_session(session, [user], SECRET)
    await chats.kit.authors(session, user)
    key = await key_of(chats, "mallory")
    tried = attacks(session, user)
    assert len(tried) > 100
    async with httpx2.AsyncClient() as client:
        for body, headers in tried:
            answer = await client.post(
                f"{chats.url}/v1/chat/completions", content=body, headers={**headers, "x-eden-key": key}
            )
            assert SECRET not in answer.text
    assert all(SECRET not in came.raw.decode() for came in chats.upstream.came)
    await chats.gateway.keeping.idle()
    assert await chats.stored(session) == []
    await chats.say("When?", memory_id=session, user=user)
    assert SECRET in chats.came.raw.decode()
