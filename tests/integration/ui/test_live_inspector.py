"""The inspector beside a system that runs: pages follow what is written, forms change memory, operators act."""

import re
from decimal import Decimal
from html import unescape
from urllib.parse import quote

import pytest
from playwright.async_api import Browser, expect

from eden_memory.mongo.ids import encode_id
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from eden_memory.usage.budget_store import MongoBudgets
from tests.browser import Watched, window
from tests.integration.context.harness import Kit
from tests.integration.doors.conftest import Doors, doors_of
from tests.integration.doors.world import Key
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import AGENT, System, fast, system
from tests.integration.ui.operating import beside, troubled
from tests.integration.ui.visiting import faults, secret_of
from tests.model_server.serving import serving

pytestmark = pytest.mark.servers
ANN = Scope.of_user(encode_id(AGENT), encode_id("ann"))
OF_ANN = f"agent={AGENT}&user=ann&key={quote(ANN.key)}"
MINUTE = 60_000
ROW = re.compile(r'<span class="main" dir="auto">([^<]*)</span>')
PAGES = (
    "dead-letters",
    "lag",
    "namespaces",
    "budgets",
    "budget",
    "budget?user=ann",
    "namespace?name=copy&report=true",
)


async def test_memory_is_watched_corrected_and_operated_in_a_browser(
    settings: Settings, browser: Browser
) -> None:
    async with (
        serving(obey) as models,
        system(fast(settings, models), models) as running,
        doors_of(Kit(running.settings, running.database.client), operator=True) as doors,
        window(browser, doors.url) as page,
    ):
        page.page.set_default_timeout(MINUTE)
        expect.set_options(timeout=MINUTE)
        session = await running.session("ann", title="Boats")
        await running.told(session, "ann", "note user: Wants long answers.")
        await _watched(page, running, session)
        await _told(page, running, session)
        await _corrected(page)
        await _operated(page, doors, running, session)
        assert page.wrong == []


@pytest.mark.slow
async def test_ids_and_shards_are_found_as_the_application_writes_them(settings: Settings) -> None:
    user, shard = "ada lövelace@example.com", "größe"
    async with (
        serving(obey) as models,
        system(fast(settings, models), models) as running,
        doors_of(Kit(running.settings, running.database.client)) as doors,
    ):
        await running.service.set_stream(f"shard:{shard}", sharing="team", extraction_guidance="Sizes.")
        session = await running.session(user)
        await running.told(
            session,
            user,
            "fact user: Ada likes tea.",
            f"fact shard:{shard}: The price of a cabin is 400 euros.",
        )

        async def found(kind: str, find: str) -> list[str]:
            where = {"agent": AGENT, "kind": kind, "find": find}
            answer = await doors.http.get("/ui/agent", params=where)
            return [unescape(name) for name in ROW.findall(answer.text)]

        for find in ("ada lö", "ada lövelace@ex", "s.ada lövelace@", "s.ada%20l%C3%B6velace%40", ""):
            assert await found("user", find) == [user], find
        assert await found("user", "ada@") == []
        for find in ("gr", "größ", ""):
            assert await found("shard", find) == [shard], find


async def _watched(page: Watched, running: System, session: str) -> None:
    """An open page shows what is said, without being opened again; the fact leads back to the message."""
    await page.open(f"/ui/facts?{OF_ANN}")
    await expect(page.page.get_by_text("No facts here.")).to_be_visible()
    await running.told(session, "ann", "I bought a boat! fact user: Ann owns a boat.")
    await page.page.get_by_role("link", name="Ann owns a boat.").click()
    await expect(page.page.get_by_text("I bought a boat! fact user: Ann owns a boat.")).to_be_visible()
    await page.open(f"/ui/context?agent={AGENT}&session={session}&user=ann")
    await expect(page.page.locator("pre")).to_contain_text("Ann owns a boat.")
    await page.page.get_by_role("link", name="Windows of this session").click()
    await expect(page.page.get_by_role("cell", name="formed").first).to_be_visible()


async def _told(page: Watched, running: System, session: str) -> None:
    """What is said is told as people see it: in the feed, of the person, in its window, and beside the context."""
    await running.told(session, "ann", "fact user: Ann sails, same-hobby.", "Good morning.")
    await running.told(session, "ann", "fact user: Ann sails at night, moreover same-hobby.")
    await page.open("/ui")
    await expect(page.page.locator("#growth ~ .charts svg")).to_have_count(3)
    facts = page.page.get_by_role("img", name="Facts a day: 30 bars, the highest")
    await expect(facts.locator("title").last).not_to_have_text(re.compile(": 0$"))
    await (
        page.page.get_by_role("listitem")
        .filter(has_text="Ann sails")
        .get_by_role("link", name="ann", exact=True)
        .click()
    )
    await expect(page.page.get_by_role("link", name="What is known")).to_have_attribute(
        "aria-current", "page"
    )
    await expect(page.page.get_by_text("changed 1 time")).to_be_visible()
    await expect(page.page.locator(".timeline ins").first).to_contain_text("moreover")
    await page.open(f"/ui/windows?agent={AGENT}&session={session}&user=ann")
    await page.page.get_by_role("link", name="window 3").click()
    fate = page.page.get_by_role("listitem").filter(has_text="Good morning.").last
    await expect(fate.get_by_text("The model stated no fact from it.")).to_be_visible()
    await expect(page.page.get_by_role("heading", name="Boats")).to_be_visible()
    await page.page.locator(".came a").first.click()
    await expect(page.page.get_by_role("heading", name="Ann sails", exact=False)).to_be_visible()
    await page.open(f"/ui/context?agent={AGENT}&session={session}&user=ann")
    await expect(page.page.get_by_text("No message is given to recall for.")).to_be_visible()
    assert await faults(page.page) == []


async def _corrected(page: Watched) -> None:
    """The change that a form asks for comes about while its page is open, and says who asked."""
    await page.open(f"/ui/facts?{OF_ANN}")
    await page.page.get_by_role("link", name="Ann owns a boat.").click()
    await page.page.get_by_role("link", name="Edit").click()
    await page.page.get_by_label("Text").fill("Ann owns two boats.")
    await page.page.get_by_role("button", name="Save").click()
    await expect(page.page.get_by_role("heading", name="Ann owns two boats.")).to_be_visible()
    await expect(page.page.get_by_text("edit by ui:local")).to_be_visible()
    await page.page.get_by_role("link", name="Forget", exact=True).click()
    await page.page.get_by_role("button", name="Forget for ever").click()
    await expect(page.page.get_by_text("There is no such fact here")).to_be_visible()


async def _operated(page: Watched, doors: Doors, running: System, session: str) -> None:
    """A window that no model could answer is seen, and tried again; another namespace is compared and made live."""
    await running.told(session, "ann", "fact user: Ann likes tea.")
    await troubled(running, session, "ann")
    await _settled(page)
    await _limited(page, running)
    await beside(running, "Ann likes tea.", "Ann likes coffee.")
    for path in PAGES:
        assert await page.open(f"/ui/operator/{path}") == 200
        assert await faults(page.page) == []
        for key in (
            Key(f"read {path}", None, None, ("read",)),
            Key(f"bound {path}", (ANN.agent_id,), None, ("admin",)),
        ):
            headers = {"X-Eden-Key": await secret_of(doors, key)}
            assert (await doors.http.get(f"/ui/operator/{path}", headers=headers)).status_code == 403
    await expect(page.page.locator(".sides del")).to_have_text("tea.")
    await expect(page.page.locator(".sides ins")).to_have_text("coffee.")
    await page.page.get_by_role("button", name="Make copy live").click()
    await expect(page.page.get_by_role("link", name="copy live")).to_be_visible()
    await page.open(f"/ui/facts?{OF_ANN}")
    await expect(page.page.get_by_role("link", name="Ann likes coffee.")).to_be_visible()
    await page.open("/ui/operator/namespaces")
    await page.page.get_by_role("link", name="Roll back to").click()
    assert await faults(page.page) == []
    await page.page.get_by_role("button", name="Roll back to").click()
    await expect(page.page.get_by_role("status")).to_contain_text("is live again")
    await page.open(f"/ui/facts?{OF_ANN}")
    await expect(page.page.get_by_role("link", name="Ann likes tea.")).to_be_visible()


async def _limited(page: Watched, running: System) -> None:
    """A budget is set, changed, removed, and set again; the document says who set it."""
    budgets = running.database[running.settings.names["budgets"]]
    await page.open("/ui/operator/budgets")
    await page.page.get_by_role("link", name="Set a budget").click()
    await page.page.get_by_label("User").fill("ann")
    await page.page.get_by_label("Limit").fill("much")
    await page.page.get_by_role("button", name="Set the limit").click()
    await expect(page.page.get_by_text("'much' is not an amount", exact=False)).to_be_visible()
    await page.page.go_back()
    await page.page.get_by_label("Limit").fill("5")
    await page.page.get_by_role("button", name="Set the limit").click()
    await page.page.get_by_role("link", name="Change the budget of all agents, user ann").click()
    await page.page.get_by_label("Limit").fill("7.5")
    await page.page.get_by_role("button", name="Change the limit").click()
    await expect(page.page.get_by_text("left of $7.50")).to_be_visible()
    stored = await budgets.find_one({"user_id": encode_id("ann")})
    assert stored is not None
    assert (stored["set_by"], stored["per"]) == ("ui:local", "day")
    await page.page.get_by_role("link", name="Change the budget").click()
    await page.page.get_by_role("button", name="Remove the budget").click()
    await expect(page.page.get_by_text("No budgets.")).to_be_visible()
    await MongoBudgets(running.database, running.settings.names).set(
        None, encode_id("ann"), "day", Decimal(5), "test"
    )


async def _settled(page: Watched) -> None:
    """The overview names what was given up and how far stages are behind; its dead letter is tried again."""
    await page.open("/ui")
    gone = page.page.get_by_text("A fact. Erased: 1 fact")
    await expect(gone).to_be_visible()
    await expect(page.page.get_by_text("given up", exact=True)).to_be_visible()
    await expect(page.page.get_by_role("rowheader", name="fact-extraction")).to_be_visible()
    await page.page.get_by_role("link", name="All failed windows").click()
    await expect(page.page.get_by_role("cell", name="failed").first).to_be_visible()
    await page.open("/ui/operator/dead-letters")
    await page.page.get_by_role("link", name="fact-extraction").click()
    await page.page.get_by_role("button", name="Retry").click()
    await expect(page.page.get_by_role("status")).to_contain_text("Its stage tries it")
