"""The inspector in a browser: what it shows to whom, what its forms ask for, and what it never runs."""

import asyncio
import re
from collections import Counter
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, quote

import pytest
from playwright.async_api import Browser, Route, expect

from eden_memory.schemas.scopes import Scope
from tests.browser import NARROW, Watched, window
from tests.integration.doors.conftest import Doors
from tests.integration.doors.world import Key
from tests.integration.python.stored import ADA, AGENT, BOB, YARD, fact, inbox, store
from tests.integration.ui.visiting import faults, signed_in
from tests.integration.ui.world import ATTACKS, FORMATION, ONE

pytestmark = pytest.mark.servers
EVE, IVY = Scope.of_user("s.a", "s.eve"), Scope.of_user("s.a", "s.ivy")
OF_ADA = "agent=a&user=ada"
ADA_KEY, CHANGE = f"{OF_ADA}&key={quote(ADA.key)}", f"/ui/change?{OF_ADA}"
HREF = re.compile(r'<a [^>]*href="(/ui[^"]*)"')
PAGES = (
    "/ui/sign-in",
    "/ui",
    "/ui/agents",
    "/ui/agent?agent=a",
    "/ui/agent?agent=a&kind=session",
    "/ui/agent?agent=a&kind=shard",
    "/ui/shared?agent=a",
    f"/ui/person?{ADA_KEY}",
    f"/ui/scope?{ADA_KEY}",
    f"/ui/scope?{ADA_KEY}&version=2",
    f"/ui/scope?agent=a&session=one&key={quote(ONE.key)}",
    f"/ui/facts?{ADA_KEY}",
    f"/ui/facts?{ADA_KEY}&q=Lisbon",
    f"/ui/facts?{ADA_KEY}&since=2031-01-01",
    f"/ui/reflections?{ADA_KEY}",
    f"/ui/fact?{OF_ADA}&id=moved",
    f"/ui/reflection?{OF_ADA}&id=r-ada-1",
    f"/ui/context?{OF_ADA}&session=one",
    f"{CHANGE}&what=fact&act=edit&id=moved",
    f"{CHANGE}&what=fact&act=forget&id=moved",
    f"{CHANGE}&what=blob&act=edit&id={quote(ADA.key)}",
    f"{CHANGE}&what=blob&act=pin&id={quote(ADA.key)}",
    f"{CHANGE}&what=blob&act=unpin&id={quote(ADA.key)}",
    f"{CHANGE}&what=reflection&act=private&id=r-ada-1",
    f"/ui/add?{OF_ADA}",
    "/ui/windows",
    "/ui/windows?show=failed",
    "/ui/windows?agent=a&session=one",
    f"/ui/window?id={quote(FORMATION)}",
    "/ui/costs",
    "/ui/costs?agent=nobody",
    "/ui/operator/lag",
)


async def text_of(watched: Watched) -> str:
    return await watched.page.inner_text("main")


async def shown_facts(watched: Watched) -> list[str]:
    return await watched.page.locator(".memories .memory").all_inner_texts()


async def asked(doors: Doors) -> dict[str, Any]:
    """The newest request."""
    return (await inbox(doors.kit))[-1]


async def test_from_the_agents_to_a_fact_its_messages_and_the_contexts_that_show_it(page: Watched) -> None:
    await page.open("/ui/agents")
    await page.page.get_by_role("link", name="Support").click()
    await page.page.get_by_role("link", name="Ada <b>Byron</b>", exact=False).first.click()
    shown = await text_of(page)
    assert "Ada likes green tea, and lives in Lisbon now." in shown
    assert "changed 1 time" in shown
    assert "retired" in shown
    await page.page.get_by_role("link", name="what each consolidation changed").click()
    shown = await text_of(page)
    assert "Never call before nine." in shown
    assert await page.page.locator(".diff ins").all_inner_texts() == ["green tea,", "Lisbon now."]
    assert await page.page.locator(".diff del").all_inner_texts() == ["tea", "Lisbon."]
    assert "Wants short answers." in shown
    await page.page.get_by_role("navigation", name="Scope").get_by_role("link", name="Facts").click()
    await page.page.get_by_label("Search").fill("where does Ada work?")
    await page.page.get_by_role("button", name="Show").click()
    await page.page.get_by_role("link", name="Ada works in Lisbon.").click()
    shown = await text_of(page)
    for said in (
        "Ada works in Porto.",
        "moved <i>for good</i>",
        "I moved to Lisbon.",
        "Window 1 of Moving to Lisbon",
        "$0.0123",
    ):
        assert said in shown
    await page.page.get_by_role(
        "link", name="session Moving to Lisbon, user Ada <b>Byron</b>", exact=False
    ).click()
    assert "<MemoryContext>" in await text_of(page)


async def test_facts_are_filtered_by_state_and_date_page_by_page(page: Watched, inspector: Doors) -> None:
    await page.open(f"/ui/facts?{ADA_KEY}")
    await page.page.get_by_label("State").select_option("retired")
    await page.page.get_by_role("button", name="Show").click()
    assert await shown_facts(page) == ["Ada lives in Porto."]
    days = [fact(f"day-{day}", EVE, f"Day {day:02}.", day * 24 * 60) for day in range(40)]
    await store(inspector.kit, days)
    await inspector.kit.put(EVE, active_facts=40)
    await page.open(f"/ui/facts?agent=a&user=eve&key={quote(EVE.key)}&since=2026-03-03&until=2026-04-05")
    found = await shown_facts(page)
    await page.page.get_by_role("link", name="Next page").click()
    found += await shown_facts(page)
    assert found == [f"Day {day:02}." for day in range(34, 1, -1)]
    assert await page.page.get_by_role("link", name="Next page").count() == 0
    await page.page.get_by_role("link", name="First page").click()
    assert (await shown_facts(page))[0] == "Day 34."


async def test_a_page_follows_changes_however_late_its_scripts_come(page: Watched) -> None:
    async def late(route: Route) -> None:
        await asyncio.sleep(0.5)
        await route.continue_()

    await page.page.route("**/ui/assets/hx-sse.min.js?*", late)
    async with page.page.expect_request(lambda request: "/ui/events?" in request.url):
        await page.open(f"/ui/facts?{ADA_KEY}")


async def test_a_page_that_could_not_be_refreshed_stays_and_follows_the_next_change(
    page: Watched, inspector: Doors
) -> None:
    async def added(text: str) -> None:
        await store(inspector.kit, [fact(text.split()[1], IVY, text)])
        await inspector.kit.put(IVY, active_facts=1)

    await added("Likes tea.")
    await page.open(f"/ui/facts?agent=a&user=ivy&key={quote(IVY.key)}")
    busy = '<main id="main">MongoDB does not answer.</main>'
    await page.page.route("**/ui/facts?*", lambda route: route.fulfill(status=503, body=busy))
    async with page.page.expect_response(lambda answer: answer.status == 503):
        await added("Likes jam.")
    await page.page.unroute("**/ui/facts?*")
    assert await shown_facts(page) == ["Likes tea."]
    await added("Likes rye.")
    await expect(page.page.get_by_role("link", name="Likes rye.")).to_be_visible()


async def test_whatever_memory_says_is_text(page: Watched) -> None:
    pages = (
        f"/ui/facts?{ADA_KEY}",
        f"/ui/scope?{ADA_KEY}",
        f"/ui/fact?{OF_ADA}&id=moved",
        "/ui/agent?agent=a",
        "/ui/shared?agent=a",
    )
    details = [f"/ui/fact?{OF_ADA}&id=attack-{number}" for number in range(len(ATTACKS))]
    edits = [f"{CHANGE}&what=fact&act=edit&id=attack-{number}" for number in range(len(ATTACKS))]
    inputs = [f"/ui/agent?agent=a&find={quote(text)}" for text in ATTACKS]
    inputs += [
        f"/ui/context?agent={quote(text)}&user={quote(text)}&message={quote(text)}" for text in ATTACKS
    ]
    for path in (*pages, *details, *edits, *inputs):
        await page.open(path)
        assert await page.page.evaluate("window.hacked") is None, path
        foreign = "img, base, style, iframe, object, meta[http-equiv], script:not([src^='/ui/assets/'])"
        assert (
            await page.page.locator(f"{foreign}, svg:not(.plot), [onload], [onerror], [onfocus]").count() == 0
        )
        assert page.page.url.startswith(page.url), path
    await page.open(pages[0])
    shown = await page.page.locator(".memories .memory").all_text_contents()
    assert set(ATTACKS) <= set(shown)
    await page.open(edits[4])
    assert await page.page.get_by_label("Text").input_value() == ATTACKS[4]


async def test_every_link_leads_to_a_page(inspector: Doors) -> None:
    """Two links of each kind: the same page, parameters and action."""
    waiting, opened = ["/ui", "/ui/agents"], Counter[tuple[str, ...]]()
    while waiting:
        path = waiting.pop()
        opened[_kind(path)] += 1
        answer = await inspector.http.get(path)
        assert answer.status_code == 200, path
        links = dict.fromkeys(unescape(href).partition("#")[0] for href in HREF.findall(answer.text))
        planned = Counter(map(_kind, waiting))
        waiting += [link for link in links if opened[_kind(link)] + planned[_kind(link)] < 2]
    shown = {page.removeprefix("/ui/") for page, *_ in opened}
    assert {"agent", "scope", "facts", "fact", "reflection", "context", "windows", "change", "add"} <= shown


def _kind(link: str) -> tuple[str, ...]:
    page, _, query = link.partition("?")
    given = dict(parse_qsl(query))
    return (page, *sorted(given), *(given.get(name, "") for name in ("what", "act", "kind")))


async def test_a_form_asks_once_and_what_it_asks_for_says_who(page: Watched, inspector: Doors) -> None:
    await page.open(f"/ui/fact?{OF_ADA}&id=moved")
    await page.page.get_by_role("link", name="Edit").click()
    await page.page.get_by_label("Text").fill("Ada works in Faro.")
    await page.page.get_by_label("Reason").fill("she said so")
    await page.page.get_by_role("button", name="Save").click()
    await page.page.get_by_role("status").wait_for()
    request = await asked(inspector)
    expected = {"action": "edit", "fact_id": "moved", "text": "Ada works in Faro.", "expected_version": 2}
    assert {name: request[name] for name in expected} == expected
    assert (request["asked_by"], request["reason"]) == ("ui:local", "she said so")
    for what, name, button, field in (
        ("fact", "moved", "Retire", "action"),
        ("fact", "moved", "Forget for ever", "what"),
        ("reflection", "r-ada-0", "Retire", "action"),
        ("blob", ADA.key, "Forget for ever", "what"),
        ("message", "s.m1", "Forget for ever", "what"),
        ("session", "s.one", "Forget for ever", "what"),
        ("user", "s.ada", "Forget for ever", "what"),
    ):
        act = button.split()[0].lower()
        whose = "agent=a" if what in ("message", "session", "user") else OF_ADA
        await page.open(f"/ui/change?{whose}&what={what}&act={act}&id={quote(name)}")
        before = len(await inbox(inspector.kit))
        await page.page.get_by_role("button", name=button).click()
        await page.page.get_by_role("status").wait_for()
        request = await asked(inspector)
        assert len(await inbox(inspector.kit)) == before + 1
        assert request["asked_by"] == "ui:local"
        assert request[field].startswith(act) if field == "action" else request[field] == what
    await page.open(f"/ui/add?{OF_ADA}")
    await page.page.get_by_label("Text").fill("Ada sails.")
    await page.page.get_by_label("How").select_option("fact")
    await page.page.get_by_role("button", name="Add").click()
    await page.page.get_by_role("status").wait_for()
    request = await asked(inspector)
    assert (request["action"], request["text"], request["scope"]["key"]) == ("add", "Ada sails.", ADA.key)


async def test_pins_and_private_marks_are_asked_for_where_they_are_shown(
    page: Watched, inspector: Doors
) -> None:
    await page.open(f"/ui/scope?{ADA_KEY}")
    await page.page.get_by_role("link", name="Pin a sentence").click()
    await page.page.get_by_label("Sentence").fill("Ada is vegan.")
    await _pressed(page, "Pin")
    request = await asked(inspector)
    expected = {"action": "pin", "text": "Ada is vegan.", "expected_version": 3, "asked_by": "ui:local"}
    assert {name: request[name] for name in expected} == expected
    await page.page.get_by_role("link", name="unpin").click()
    await page.page.get_by_label("Reason").fill("no longer true")
    await _pressed(page, "Unpin")
    request = await asked(inspector)
    expected = {"action": "unpin", "text": "Never call before nine.", "reason": "no longer true"}
    assert {name: request[name] for name in expected} == expected
    reflections = inspector.kit.database["memory_reflections"]
    for marked, button in ((True, "Mark as private"), (False, "Take the private mark off")):
        await page.open(f"/ui/reflection?{OF_ADA}&id=r-ada-2")
        await page.page.get_by_role("link", name=button).click()
        await _pressed(page, "Mark as private" if marked else "Take the mark off")
        request = await asked(inspector)
        assert (request["private"], request["reflection_id"], request["asked_by"]) == (
            marked,
            "r-ada-2",
            "ui:local",
        )
        await reflections.update_one({"_id": "r-ada-2"}, {"$set": {"private": marked}})
    await page.open(f"/ui/fact?{OF_ADA}&id=moved")
    await page.page.get_by_role("link", name="Mark as private").click()
    await _pressed(page, "Mark as private")
    request = await asked(inspector)
    assert (request["action"], request["fact_id"], request["private"]) == ("mark", "moved", True)
    assert await page.open(f"{CHANGE}&what=blob&act=retire&id={quote(ADA.key)}") == 422
    assert await page.open(f"{CHANGE}&what=blob&act=unpin&pin=1&id={quote(ADA.key)}") == 409


async def _pressed(page: Watched, button: str) -> None:
    await page.page.get_by_role("button", name=button, exact=True).click()
    await page.page.get_by_role("status").wait_for()


async def test_what_came_from_users_is_given_back_or_retired(page: Watched, inspector: Doors) -> None:
    await page.open("/ui/agent?agent=a&user=ada")
    await page.page.get_by_role("link", name="What came from users").click()
    shown = await text_of(page)
    assert shown.index("Refunds take 14 days.") < shown.index("The fair is in May.")
    assert "session Moving to Lisbon · user Ada <b>Byron</b>" in shown
    assert await page.page.get_by_role("button", name="Give to").count() == 1
    for item, button, asks in (
        ("Refunds", "Give to Ada <b>Byron</b>", ("retire", "add")),
        ("The fair", "Retire", ("retire",)),
    ):
        before = {request["_id"] for request in await inbox(inspector.kit)}
        row = page.page.get_by_role("listitem").filter(has_text=item)
        async with page.page.expect_navigation():
            await row.get_by_role("button", name=button).click()
        await page.page.get_by_role("status").wait_for()
        requests = [request for request in await inbox(inspector.kit) if request["_id"] not in before]
        assert {request["action"] for request in requests} == set(asks)
        assert {request["asked_by"] for request in requests} == {"ui:local"}
    answer = await inspector.http.post(
        "/ui/shared?agent=a", data={"id": "shared-0"}, headers={"origin": "null"}
    )
    assert answer.status_code == 403


async def test_what_has_changed_meanwhile_is_refused(page: Watched, inspector: Doors) -> None:
    await page.open(f"{CHANGE}&what=fact&act=edit&id=attack-6")
    facts = inspector.kit.database["memory_facts"]
    await facts.update_one({"_id": "attack-6"}, {"$set": {"version": 2}})
    await page.page.get_by_label("Text").fill("Something else.")
    await page.page.get_by_role("button", name="Save").click()
    await page.page.get_by_text("The fact is at version 2").wait_for()


async def test_a_read_only_key_sees_no_button_and_its_forms_are_refused(
    browser: Browser, inspector: Doors
) -> None:
    async with window(browser, inspector.url) as reader:
        await signed_in(reader, inspector, Key("reader", None, None, ("read",)))
        for path in (
            f"/ui/scope?{ADA_KEY}",
            "/ui/shared?agent=a",
            f"/ui/fact?{OF_ADA}&id=moved",
            "/ui/agent?agent=a",
        ):
            await reader.open(path)
            assert (
                await reader.page.locator("main a[href*='/ui/change'], main a[href*='/ui/add']").count() == 0
            )
            assert await reader.page.locator("main form[method=post]").count() == 0
        assert "read-only" in await reader.page.inner_text("header")
        assert await reader.open(f"{CHANGE}&what=fact&act=edit&id=moved") == 403
        await reader.page.get_by_role("button", name="Sign out").click()
        await reader.page.wait_for_url("**/ui/sign-in")
        assert await reader.page.context.cookies() == []
        assert reader.wrong == []


async def test_a_key_sees_what_it_sees_over_http(browser: Browser, inspector: Doors) -> None:
    async with window(browser, inspector.url) as ada:
        await signed_in(ada, inspector, Key("ada-only", ("s.a",), ("s.ada",)))
        (cookie,) = await ada.page.context.cookies()
        assert (cookie.get("httpOnly"), cookie.get("sameSite"), cookie.get("path")) == (True, "Strict", "/ui")
        assert await ada.page.evaluate("document.cookie") == ""
        await ada.open("/ui/agent?agent=a")
        assert "bob" not in await text_of(ada)
        await ada.open("/ui/agent?agent=a&kind=session")
        sessions = await text_of(ada)
        assert "Moving to Lisbon" in sessions
        assert "both" not in sessions
        paths = (
            f"scope?agent=a&user=bob&key={quote(BOB.key)}",
            f"scope?agent=a&user=ada&key={quote(BOB.key)}",
            "fact?agent=a&user=ada&id=bob-0",
            "fact?agent=a&user=bob&id=bob-0",
            "agent?agent=b",
            "context?agent=a&session=both",
            "context?agent=a&session=both&user=ada",
            f"scope?agent=a&user=ada&session=both&key={quote(YARD.key)}",
            "shared?agent=a",
            "shared?agent=a&user=ada",
        )
        for path in paths:
            assert await ada.open(f"/ui/{path}") in (403, 404), path
            assert "Turin" not in await text_of(ada)
        await ada.open(f"/ui/scope?agent=a&key={quote(AGENT.key)}")
        assert await ada.page.locator("main a[href*='/ui/change']").count() == 0
        await inspector.keys.revoke("ada-only")


async def test_without_a_key_only_this_machine_and_our_own_pages_get_in(inspector: Doors) -> None:
    http, form = inspector.http, {"text": "Eve sails."}
    own = {"origin": inspector.url, "content-type": "application/x-www-form-urlencoded"}
    before = len(await inbox(inspector.kit))
    foreign: tuple[dict[str, str], ...] = (
        {},
        {"origin": "null"},
        {"origin": "https://evil.example"},
        {"origin": "https://app.example"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "same-site", "origin": inspector.url},
        {"sec-fetch-site": "cross-site", "origin": inspector.url},
        {"host": "evil.example", "origin": "http://evil.example"},
    )
    for headers in foreign:
        answer = await http.post("/ui/add?agent=a", data=form, headers={**own, "origin": "", **headers})
        assert answer.status_code == 403, headers
    assert (await http.get("/ui/agents", headers={"origin": "https://app.example"})).status_code == 403
    assert (await http.get("/ui/agents", headers={"host": "evil.example"})).status_code == 403
    assert len(await inbox(inspector.kit)) == before
    assert (await http.post("/ui/add?agent=a", data=form, headers=own)).status_code == 303
    answer = await http.get("/ui/agents", headers={"cookie": "eden_key=eden_wrong"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/sign-in?to=%2Fui%2Fagents")
    sent = await http.post(
        "/ui/sign-in", data={"key": "eden_wrong", "to": "https://evil.example"}, headers=own
    )
    assert sent.status_code == 401
    assert 'value="/ui"' in sent.text


async def test_windows_and_costs_of_all_are_not_for_bound_keys(browser: Browser, inspector: Doors) -> None:
    async with window(browser, inspector.url) as everything:
        await everything.open("/ui/windows")
        shown = await text_of(everything)
        assert "window 1 of Moving to Lisbon" in shown
        assert "$0.0123" in shown
        await everything.open("/ui/costs?by=user")
        assert await everything.page.get_by_role("row", name="Ada <b>Byron</b>").count() == 1
        assert await everything.page.locator("svg.plot .bar").count() == 30
        assert everything.wrong == []
    async with window(browser, inspector.url) as bob:
        await signed_in(bob, inspector, Key("bob-only", None, ("s.bob",)))
        assert await bob.open("/ui/windows") == 403
        assert await bob.open("/ui/windows?agent=a&session=one&user=bob") == 403
        assert await bob.open("/ui/costs?user=ada") == 403
        assert await bob.open("/ui/costs") == 200
        assert "No model was called." in await text_of(bob)
        assert await bob.open("/ui") == 200
        assert bob.page.url.endswith("/ui/agents")
        assert await bob.open("/ui/operator/lag") == 404


async def test_no_page_allows_scripts_but_ours(inspector: Doors) -> None:
    for path in (*PAGES, "/ui/fact?agent=a&id=nothing"):
        answer = await inspector.http.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-frame-options"] == "DENY"


async def test_every_page_is_accessible_light_and_dark_and_fits_a_narrow_window(
    browser: Browser, inspector: Doors
) -> None:
    async with window(browser, inspector.url, viewport=NARROW, reduced_motion="reduce") as narrow:
        for path in PAGES:
            await narrow.page.emulate_media(color_scheme="light")
            await narrow.open(path)
            wide = await narrow.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= NARROW["width"], path
            assert await faults(narrow.page) == [], path
            await narrow.page.emulate_media(color_scheme="dark")
            assert await faults(narrow.page, {"type": "rule", "values": ["color-contrast"]}) == [], path
        assert narrow.wrong == []


async def test_a_page_is_used_by_keyboard_alone(page: Watched) -> None:
    await page.open("/ui/agents")
    await page.page.keyboard.press("Tab")
    assert await page.page.evaluate("document.activeElement.textContent") == "Skip to content"
    await page.page.keyboard.press("Enter")
    await page.page.keyboard.press("Tab")
    assert await page.page.evaluate("document.activeElement.matches('main a')")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert await page.page.evaluate(outline) == "solid"
    await page.page.keyboard.press("Enter")
    await page.page.wait_for_url("**/ui/agent?*")
