"""What the HTTP API answers, to whom, and how it says no."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import httpx2
import pytest

from eden_memory.api.http.problem import MOST_BODY_BYTES
from eden_memory.context.context_feed import ContextFeed
from eden_memory.metrics import HTTP_STREAMS
from eden_memory.schemas.scopes import Scope
from tests.integration.context.harness import fact, reflection
from tests.integration.doors.conftest import Doors, doors_of
from tests.integration.doors.world import Key
from tests.integration.http.conftest import ADA, bearer, key_of
from tests.integration.mcp.stored import remember
from tests.integration.python.stored import AT, store
from tests.integration.python.stored import blob as blob_of
from tests.integration.python.stored import reflection as reflection_of
from tests.model_server.serving import until

pytestmark = pytest.mark.servers
A = "/v1/agents/a"
AGENT = Scope.of_agent("s.a")
FACT = f"{A}/facts/user-s.ada-0"


def code(response: httpx2.Response) -> str:
    """Of a problem; every error has to be one."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    body = response.json()
    assert body["status"] == response.status_code
    assert body["detail"]
    return body["type"].rpartition(":")[2]


async def inbox(api: Doors, request_id: str) -> dict[str, Any]:
    rows = await api.kit.database["memory_inbox"].find().to_list()
    return next(one for one in rows if f"o.{one['_id']}" == request_id)


async def test_a_context_changes_its_etag_with_its_text_alone(api: Doors) -> None:
    where = {"session": "ada-alone", "user": "s.ada"}
    await api.kit.put(ADA, blob="Ada likes short answers.", active_facts=1)

    async def asked(tag: str = "") -> httpx2.Response:
        headers = {"If-None-Match": tag} if tag else {}
        return await api.http.get(f"{A}/context", params=where, headers=headers)

    async def shown(text: str) -> httpx2.Response:
        response = await asked()
        while text not in response.text:
            response = await asked()
        return response

    first = await shown("short answers")
    assert first.headers["content-type"].startswith("application/xml")
    again = await asked(f'"other", W/{first.headers["etag"]}')
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    await api.kit.put(ADA, blob="Ada likes long answers.", active_facts=1)
    second = await shown("long answers")
    assert second.headers["etag"] != first.headers["etag"]
    assert (await asked(first.headers["etag"])).status_code == 200
    assert (await api.http.get("/v1/agents/nobody/context")).status_code == 204
    for answers in ("brief", "thorough"):
        await api.kit.put(ADA, blob=f"Ada likes {answers} answers.", active_facts=1)
        anew = await api.http.get(f"{A}/context", params={**where, "force_refresh": "true"})
        assert f"{answers} answers" in anew.text, "read anew, not from the cache"


async def test_what_is_remembered_is_listed_searched_and_explained(api: Doors) -> None:
    page = (await api.http.get(f"{A}/facts", params={"user": "ada"})).json()
    assert [(one["content"], one["scope"]["key"]) for one in page["items"]] == [
        ("Ada works in Lisbon.", ADA.key)
    ]
    assert page["cursor"] is None
    wanted: dict[str, Any] = {"queries": ["Where does Ada work?"], "debug": True}
    found = (await api.http.post(f"{A}/search", params={"user": "ada"}, json=wanted)).json()
    assert [one["content"] for one in found["facts"]] == ["Ada works in Lisbon."]
    assert {"semantic", "text"} <= {one["name"] for one in found["stages"]}
    named: list[dict[str, Any]] = [
        {"queries": "Lisbon"},
        {"query": ["Where does Ada work?"]},
        {"query": "Ada"},
    ]
    for alike in named:
        found = (await api.http.post(f"{A}/search", params={"user": "ada"}, json=alike)).json()
        assert [one["content"] for one in found["facts"]] == ["Ada works in Lisbon."]
    for scopes, status, count in ((["user"], 200, 1), (["agent"], 200, 0), (["everybody"], 422, 0)):
        answer = await api.http.post(f"{A}/search", params={"user": "ada"}, json={**wanted, "scopes": scopes})
        assert (answer.status_code, len(answer.json().get("facts", ()))) == (status, count)
    history = (await api.http.get(f"{FACT}/history", params={"user": "ada"})).json()
    assert [one["version"] for one in history["versions"]] == [1]
    assert "user" in (await api.http.get(f"{A}/stats", params={"user": "ada"})).json()
    assert "user" in (await api.http.get(f"{A}/consolidation", params={"user": "ada"})).json()


async def test_what_changes_memory_is_asked_for_in_its_order(api: Doors) -> None:
    where = {"user": "ada", "session": "ada-alone"}
    calls = [
        ("POST", f"{A}/memories", {"text": "I moved to Porto."}, "added_text"),
        ("PATCH", FACT, {"text": "Ada works in Porto.", "expected_version": 1}, "fact_command"),
        ("POST", f"{FACT}/retire", {"reason": "wrong"}, "fact_command"),
        ("POST", f"{A}/forget", {"what": "fact", "target": "user-s.ada-0"}, "forget"),
    ]
    for method, path, body, kind in calls:
        answer = await api.http.request(method, path, params=where, json=body)
        assert answer.status_code == 202, answer.text
        asked = answer.json().get("request_id") or answer.json()["request_ids"][0]
        assert (await inbox(api, asked))["kind"] == kind
        assert (await inbox(api, asked))["asked_by"] == "http:local"
    for name, kind in (("end", "session_ended"), ("form", "form_now")):
        answer = await api.http.post(f"{A}/sessions/ada-alone/{name}", params={"user": "ada"})
        assert (await inbox(api, answer.json()["request_id"]))["kind"] == kind
    for if_due in (True, False):
        where_due = {"user": "ada", "if_due": if_due}
        answer = await api.http.post(f"{A}/sessions/ada-alone/form", params=where_due)
        assert (await inbox(api, answer.json()["request_id"]))["if_due"] is if_due
        assert answer.json()["formed"] is not if_due, "nothing waits here"
    late = await api.http.patch(FACT, params=where, json={"text": "x", "expected_version": 7})
    assert (late.status_code, code(late)) == (409, "conflict")


async def test_reflections_and_blobs_say_when_they_were_said(api: Doors) -> None:
    before = AT - timedelta(days=90)
    late = reflection_of("read-in-late", ADA, "Ada likes lists.", said_at=before)
    await store(api.kit, [late, reflection_of("said-now", ADA, "Ada likes tea.")])
    await store(api.kit, [blob_of(ADA, "Ada likes boats.", said_at=before)])
    listed = (await api.http.get(f"{A}/reflections", params={"user": "ada"})).json()["items"]
    times = {
        one["reflection_id"]: [datetime.fromisoformat(one[name]) for name in ("said_at", "formed_at")]
        for one in listed
    }
    assert times == {"read-in-late": [before, AT], "said-now": [AT, AT]}
    (blob,) = (await api.http.get(f"{A}/blobs", params={"user": "ada"})).json()
    assert [datetime.fromisoformat(blob[name]) for name in ("said_at", "consolidated_at")] == [before, AT]


async def test_everything_held_about_a_user_is_shown_and_forgotten_by_an_administrator_alone(
    api: Doors,
) -> None:
    shown = await api.http.get("/v1/users/ada/export")
    assert shown.json()["user"] == "s.ada"
    assert "Ada works in Lisbon." in shown.text
    assert "Bob" not in shown.text
    plain = await key_of(api, Key("plain", None, None))
    bound = await key_of(api, Key("bound", ("s.a",), None, ("admin",)))
    other = await key_of(api, Key("other", None, ("s.bob",), ("admin",)))
    for headers in (plain, bound, other):
        for method, path in (("GET", "/v1/users/ada/export"), ("DELETE", "/v1/users/ada")):
            refused = await api.http.request(method, path, headers=headers)
            assert (refused.status_code, code(refused)) == (403, "refused")
    deleted = await api.http.delete("/v1/users/bob", headers=other)
    assert (await inbox(api, deleted.json()["request_id"]))["target"] == "bob"


async def test_a_key_opens_what_it_is_bound_to_and_nothing_once_revoked(api: Doors) -> None:
    mine = await key_of(api, Key("adas", ("s.a",), ("s.ada",), ("read",)))

    async def asked(path: str, **where: str) -> int:
        return (await api.http.get(path, params=where, headers=mine)).status_code

    assert await asked(f"{A}/facts", user="ada") == 200
    assert await asked(f"{A}/facts", user="ada", session="ada-alone") == 200
    assert await asked(f"{A}/facts") == 403
    assert await asked(f"{A}/facts", user="bob") == 403
    assert await asked(f"{A}/facts", user="ada", session="both") == 403
    assert await asked(f"{A}/facts", user="ada", session="not-there") == 403
    assert await asked("/v1/agents/b/facts", user="ada") == 403
    text = {"text": "x"}
    written = await api.http.post(f"{A}/memories", params={"user": "ada"}, json=text, headers=mine)
    assert (written.status_code, code(written)) == (403, "refused")
    await api.keys.revoke("adas")
    gone = await api.http.get(f"{A}/facts", params={"user": "ada"}, headers=mine)
    assert (gone.status_code, code(gone)) == (401, "key-needed")
    assert gone.headers["www-authenticate"].startswith("Bearer")
    for wrong in ("Basic YTpi", "Bearer eden_x", "Bearer", "nonsense"):
        assert (await api.http.get(f"{A}/facts", headers={"Authorization": wrong})).status_code == 401
    stored = json.dumps(await api.kit.database["memory_api_keys"].find().to_list(), default=str)
    assert mine["Authorization"].split()[1] not in stored


async def test_a_key_of_one_user_changes_nothing_that_others_see_too(api: Doors) -> None:
    await remember(api.kit, AGENT, "The office opens at nine.")
    await api.kit.put(AGENT, blob="Opens at nine.", blob_version=1)
    shared, where = f"{A}/facts/agent-None-0", {"user": "ada"}
    calls: list[tuple[str, str, dict[str, Any]]] = [
        ("PATCH", shared, {"text": "The office is closed."}),
        ("POST", f"{shared}/retire", {}),
        ("POST", f"{A}/forget", {"what": "fact", "target": "agent-None-0"}),
        ("POST", f"{A}/forget", {"what": "blob", "target": f"{AGENT.key}@1"}),
    ]
    mine = await key_of(api, Key("ada-alone", ("s.a",), ("s.ada",)))
    boss = await key_of(api, Key("ada-boss", ("s.a",), ("s.ada",), ("admin",)))
    assert "nine" in (await api.http.get(shared, params=where, headers=mine)).text
    for method, path, body in calls:
        refused = await api.http.request(method, path, params=where, json=body, headers=mine)
        assert (refused.status_code, code(refused)) == (403, "refused")
    for method, path, body in calls:
        answer = await api.http.request(method, path, params=where, json=body, headers=boss)
        assert answer.status_code == 202, answer.text
    own = {"what": "fact", "target": "user-s.ada-0"}
    assert (await api.http.post(f"{A}/forget", params=where, json=own, headers=mine)).status_code == 202


async def test_without_a_key_only_pages_and_names_of_this_machine_are_let_in(api: Doors) -> None:
    async def status(**headers: str) -> int:
        return (await api.http.get(f"{A}/facts", headers=headers)).status_code

    assert await status(Host="localhost:1") == 200
    assert await status(Origin=api.url) == 200
    assert await status(Origin="https://app.example") == 200
    for headers in (
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "localhost@evil.example"},
    ):
        assert await status(**headers) == 403
    for origin in (
        "https://evil.example",
        "null",
        "http://[::1",
        "http://localhost.evil.example",
        "http://127.0.0.1:1",
    ):
        assert await status(Origin=origin) == 403
    key = await key_of(api, Key("elsewhere", None, None))
    assert await status(Host="memory.example", **key) == 200


async def test_every_error_is_a_problem(api: Doors) -> None:
    async def asked(method: str, path: str, **more: Any) -> tuple[int, str]:
        response = await api.http.request(method, path, **more)
        return response.status_code, code(response)

    assert await asked("GET", "/nowhere") == (404, "not-found")
    assert "/ui" in (await api.http.get("/nowhere")).json()["hint"]
    led = await api.http.get("/")
    assert (led.status_code, led.headers["location"]) == (307, "/ui")
    assert await asked("GET", f"{A}/facts/") == (422, "invalid")
    assert await asked("PUT", f"{A}/facts") == (405, "method-not-allowed")
    assert await asked("GET", FACT, params={"user": "bob"}) == (404, "not-found")
    assert await asked("GET", f"{A}/facts", params={"user": "i.x"}) == (422, "invalid")
    assert await asked("GET", f"{A}/facts", params={"limit": "0"}) == (422, "invalid")
    assert await asked("GET", f"{A}/facts", params={"cursor": "x"}) == (422, "invalid")
    assert await asked("GET", f"{A}/facts", params={"user[$ne]": "x"}) == (422, "invalid")
    assert await asked("GET", f"{A}/facts?user=ada&user=bob") == (422, "invalid")
    assert await asked("POST", f"{A}/search", content=b"{") == (422, "invalid")
    json_type = {"Content-Type": "application/json"}
    assert await asked("POST", f"{A}/search", content=b"{", headers=json_type) == (400, "not-json")
    for wrong in ({"$ne": 1}, [{"$ne": None}], ["a"] * 4, [], ""):
        assert await asked("POST", f"{A}/search", json={"queries": wrong}) == (422, "invalid")
    refused: list[dict[str, Any]] = [
        {"top_k": -1},
        {"kinds": []},
        {"kinds": ["blobs"]},
        {"kinds": "facts"},
    ]
    for below in refused:
        assert await asked("POST", f"{A}/search", json={"queries": ["a"], **below}) == (422, "invalid")
    assert await asked("POST", f"{A}/search", json={"queries": ["a"], "query": "b"}) == (422, "invalid")
    assert await asked("POST", f"{A}/search", json={}) == (422, "invalid")
    assert await asked("POST", f"{A}/memories", json={"text": "x", "$where": "1"}) == (422, "invalid")


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
async def test_a_time_that_utc_does_not_have_is_not_valid(api: Doors, at: str) -> None:
    lists = [("facts", name) for name in ("since", "until", "occurred_after", "occurred_before")]
    lists += [("reflections", name) for name in ("since", "until")]
    for path, name in lists:
        answer = await api.http.get(f"{A}/{path}", params={"user": "ada", name: at})
        assert (answer.status_code, code(answer)) == (422, "invalid"), name
    for name in ("as_of", "asked_at", "occurred_after", "occurred_before"):
        wanted = {"queries": ["Where does Ada work?"], name: at}
        answer = await api.http.post(f"{A}/search", params={"user": "ada"}, json=wanted)
        assert (answer.status_code, code(answer)) == (422, "invalid"), name


async def test_a_large_body_is_refused_while_it_arrives(api: Doors) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 50_000_000:
            sent += 10_000
            yield b"x" * 10_000

    headers = {"Content-Type": "application/json"}
    announced = await api.http.post(f"{A}/memories", content=b"x" * (MOST_BODY_BYTES + 1), headers=headers)
    assert (announced.status_code, code(announced)) == (413, "content-too-large")
    try:
        streamed = await api.http.post(f"{A}/memories", content=endless(), headers=headers)
        assert (streamed.status_code, code(streamed)) == (413, "content-too-large")
    except (httpx2.WriteError, httpx2.ReadError):
        pass  # it was still sending when the server hung up
    assert sent < 50_000_000


async def test_a_caller_over_its_limit_is_told_when_to_come_again(api: Doors) -> None:
    key = await key_of(api, Key("slow", None, None), requests_per_minute=3)
    answers = [await api.http.get(f"{A}/stats", headers=key) for _ in range(4)]
    assert [one.status_code for one in answers] == [200, 200, 200, 429]
    assert code(answers[-1]) == "too-many-requests"
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 20
    assert (await api.http.get(f"{A}/stats")).status_code == 200


async def test_browsers_are_told_to_be_careful_and_only_named_origins_may_ask(api: Doors) -> None:
    plain = await api.http.get(f"{A}/stats", headers={"Origin": "https://app.example"})
    assert plain.headers["x-content-type-options"] == "nosniff"
    assert plain.headers["cache-control"] == "no-store"
    assert "frame-ancestors 'none'" in plain.headers["content-security-policy"]
    assert plain.headers["access-control-allow-origin"] == "https://app.example"
    asks = {"Access-Control-Request-Method": "GET", "Origin": "https://evil.example"}
    assert "access-control-allow-origin" not in (await api.http.options(f"{A}/stats", headers=asks)).headers


async def test_requests_are_counted_by_template_never_by_id(api: Doors) -> None:
    await api.http.get(FACT, params={"user": "ada"})
    page = (await api.http.get("/metrics")).text
    assert 'route="/v1/agents/{agent}/facts/{fact_id}"' in page
    assert "user-s.ada-0" not in page
    assert (await api.http.get("/metrics", headers={"Host": "evil.example"})).status_code == 403
    bound = await key_of(api, Key("scrapes", ("s.a",), None))
    assert code(await api.http.get("/metrics", headers=bound)) == "refused"


async def _lines(response: httpx2.Response) -> AsyncIterator[str]:
    async for line in response.aiter_lines():
        yield line


async def test_changes_are_told_while_they_happen_and_a_lost_connection_goes_on(api: Doors) -> None:
    where = {"user": "ada", "session": "ada-alone"}
    async with api.http.stream("GET", f"{A}/events", params=where) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = _lines(stream)
        await _until(lines, ": nothing new")
        await api.kit.put(ADA, buffer=(reflection("Ada is in a hurry."),), active_facts=1)
        seen = (await _until(lines, "id: ")).removeprefix("id: ")
        assert await _until(lines, "event: ") == "event: changed"
        told = json.loads((await _until(lines, "data: ")).removeprefix("data: "))
        assert (told["scope"]["key"], told["buffered"]) == (ADA.key, 1)
        assert "hurry" not in json.dumps(told)
    await api.kit.put(ADA, recent_facts=(fact("Ada has a dog."),), active_facts=2)
    again = {"Last-Event-ID": seen}
    async with api.http.stream("GET", f"{A}/events", params=where, headers=again) as stream:
        missed = json.loads((await _until(_lines(stream), "data: ")).removeprefix("data: "))
    assert missed["facts"] == 2
    for nonsense in ("nonsense", "W10", "eyJhIjoiYiJ9", "%00", "é"):
        with_nonsense = [(b"Last-Event-ID", nonsense.encode())]
        refused = await api.http.get(f"{A}/events", params=where, headers=with_nonsense)
        assert (refused.status_code, code(refused)) == (422, "invalid")
        assert refused.headers["content-type"].startswith("application/problem+json")
    await until(lambda: _open() == 0)


async def test_what_changes_while_no_change_stream_is_open_is_told_once_it_is(
    api: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_open, run = asyncio.Event(), ContextFeed.run

    async def held(feed: ContextFeed) -> None:
        await may_open.wait()
        await run(feed)

    monkeypatch.setattr(ContextFeed, "run", held)
    async with (
        doors_of(api.kit) as late,
        late.http.stream("GET", f"{A}/events", params={"user": "ada"}) as stream,
    ):
        lines = _lines(stream)
        await _until(lines, ": listening")
        await api.kit.put(ADA, buffer=(reflection("Ada is late."),), active_facts=9)
        may_open.set()
        told = json.loads((await _until(lines, "data: ")).removeprefix("data: "))
        assert (told["scope"]["key"], told["facts"]) == (ADA.key, 9)
        await _until(lines, ": nothing new")


async def test_a_stream_ends_when_its_key_is_revoked_and_a_caller_has_only_so_many(api: Doors) -> None:
    secret, _ = await api.keys.create("listener")
    async with (
        httpx2.AsyncClient(base_url=api.url, headers=bearer(secret), timeout=30) as client,
        client.stream("GET", f"{A}/events") as one,
        client.stream("GET", f"{A}/events") as two,
    ):
        first, second = _lines(one), _lines(two)
        await asyncio.gather(_until(first, ": listening"), _until(second, ": listening"))
        third = await client.get(f"{A}/events")
        assert (third.status_code, code(third)) == (429, "too-many-requests")
        await api.keys.revoke("listener")
        async with asyncio.timeout(60):
            assert [line async for line in first if line.startswith("data")] == []
    await until(lambda: _open() == 0)


async def _until(lines: AsyncIterator[str], begins: str) -> str:
    async with asyncio.timeout(60):
        async for line in lines:
            if line.startswith(begins):
                return line
    raise AssertionError(f"the stream ended before {begins!r}")


def _open() -> float:
    return next(iter(HTTP_STREAMS.collect())).samples[0].value
