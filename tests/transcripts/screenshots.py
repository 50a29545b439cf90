"""The pictures of docs/inspector.md: each page of the inspector, light, dark and narrow, taken in Chromium.

`python -m tests.transcripts.screenshots`. MongoDB and Kafka of its own, or EDEN_MONGODB_URI and EDEN_KAFKA_BOOTSTRAP.
"""

import asyncio
import os
import tempfile
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from urllib.parse import quote

from PIL import Image
from playwright.async_api import Browser, Page, expect

from eden_memory.mongo.documents import row_of
from eden_memory.mongo.ids import encode_id
from eden_memory.schemas.documents import BlobVersion, Consolidated, Message, RecentFact
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from eden_memory.usage.budget_store import MongoBudgets
from tests.browser import NARROW, running_browser, window
from tests.integration.context.harness import Kit, kit_for, now
from tests.integration.doors.conftest import doors_of, namespaced
from tests.integration.python.stored import ADA, AT, fact, reflection, source, spread, store
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import AGENT, System, fast, system
from tests.integration.ui.operating import BESIDE, beside, troubled
from tests.integration.ui.world import FORMATION, ONE, fill
from tests.model_server.serving import serving
from tests.servers import TestServers, running_servers
from tests.transcripts.stage import on_servers

EVE = Scope.of_user("s.a", "s.eve")
SAYS = (
    ("likes", "like"),
    ("has tried", "have tried"),
    ("asks about", "want to know about"),
    ("avoids", "avoid"),
)
ABOUT = (
    "trains to Bergen",
    "rye bread",
    "old maps",
    "night ferries",
    "wool socks",
    "long walks",
    "strong tea",
)
FOLDER = Path(__file__).parents[2] / "docs/images/inspector"
OF_ADA = f"agent=a&user=ada&key={quote(ADA.key)}"
CHANGE = "/ui/change?agent=a&user=ada"
PAGES = {
    "overview": "/ui",
    "sign-in": "/ui/sign-in",
    "agents": "/ui/agents",
    "agent": "/ui/agent?agent=a",
    "shared": "/ui/shared?agent=a",
    "person": f"/ui/person?agent=a&user=eve&key={quote(EVE.key)}",
    "scope": f"/ui/scope?{OF_ADA}",
    "session": f"/ui/scope?agent=a&session=one&key={quote(ONE.key)}",
    "facts": f"/ui/facts?{OF_ADA}",
    "search": f"/ui/facts?{OF_ADA}&q=Where%20does%20Ada%20work%3F",
    "fact": "/ui/fact?agent=a&user=ada&id=moved",
    "reflections": f"/ui/reflections?{OF_ADA}",
    "reflection": "/ui/reflection?agent=a&user=ada&id=r-ada-1",
    "context": "/ui/context?agent=a&user=eve",
    "edit": f"{CHANGE}&what=fact&act=edit&id=moved",
    "forget": f"{CHANGE}&what=fact&act=forget&id=moved",
    "pin": f"{CHANGE}&what=blob&act=pin&id={quote(ADA.key)}",
    "add": "/ui/add?agent=a&user=ada",
    "windows": "/ui/windows",
    "window": f"/ui/window?id={quote(FORMATION)}",
    "costs": "/ui/costs",
}
OPERATOR = "/ui/operator"
OPERATORS = {
    "operator-overview": "/ui",
    "dead-letters": f"{OPERATOR}/dead-letters",
    "lag": f"{OPERATOR}/lag",
    "namespaces": f"{OPERATOR}/namespaces",
    "namespace": f"{OPERATOR}/namespace?name={BESIDE}&report=true",
    "budgets": f"{OPERATOR}/budgets",
    "budget": f"{OPERATOR}/budget?user=ann",
}
"""And a dead letter, which is opened from their list."""
WIDTH, TALLEST, GAP = 900, 1_700, 16
FRAME = (128, 128, 128)
KAFKA_MS = 60_000


async def taken(page: Page, name: str) -> None:
    """Take the open page light, dark and narrow, and put the three side by side."""
    shots = [
        await _shot(page, scheme, width)
        for scheme, width in (("light", WIDTH), ("dark", WIDTH), ("light", NARROW["width"]))
    ]
    tall = max(shot.height for shot in shots)
    picture = Image.new("RGB", (sum(shot.width + GAP for shot in shots) - GAP, tall), FRAME)
    left = 0
    for shot in shots:
        picture.paste(_lengthened(shot, tall), (left, 0))
        left += shot.width + GAP
    picture.save(FOLDER / f"{name}.webp", quality=70, method=6)


async def _shot(page: Page, scheme: str, width: int) -> Image.Image:
    await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
    await page.set_viewport_size({"width": width, "height": 500})
    shot = Image.open(BytesIO(await page.screenshot(full_page=True))).convert("RGB")
    return shot.crop((0, 0, shot.width, min(shot.height, TALLEST)))


def _lengthened(shot: Image.Image, tall: int) -> Image.Image:
    """Return it with the page's background below."""
    colour = shot.getpixel((2, shot.height - 2))
    assert isinstance(colour, tuple)
    page = Image.new("RGB", (shot.width, tall), colour)
    page.paste(shot, (0, 0))
    return page


async def _all(browser: Browser, url: str, pages: Mapping[str, str]) -> None:
    for name, path in pages.items():
        async with window(browser, url) as watched:
            await watched.open(path)
            await expect(watched.page.get_by_text("Asking Kafka")).to_have_count(0, timeout=KAFKA_MS)
            await taken(watched.page, name)


async def memory(servers: TestServers, browser: Browser) -> None:
    """The pages of those who read and change memory."""
    settings = namespaced(servers)
    async with kit_for(settings) as kit:
        await fill(kit, attacked=False)
        await _lately(kit)
        async with doors_of(kit) as doors:
            await doors.http.get(PAGES["search"])  # the embedder starts
            await _all(browser, doors.url, PAGES)
        await kit.client.drop_database(settings.mongodb.database)


async def _lately(kit: Kit) -> None:
    """What somebody said in the last month, growing: a fact, and often a reflection, from each of many messages."""
    await kit.database["users"].insert_one({"_id": "eve", "name": "Eve Holm"})
    shown: list[RecentFact] = []
    for number in range(60):
        at = now() - timedelta(days=29 - 29 * (number / 59) ** 0.6, minutes=7)
        minutes, thing = int((at - AT).total_seconds() // 60), ABOUT[number % len(ABOUT)]
        (told, said), day = SAYS[number % len(SAYS)], ("", " in winter", " on Sundays")[number % 3]
        content = f"Eve {told} {thing}{day}."
        message = source("s.eve", session="s.walks", message=f"s.e{number}")
        row = Message(
            _id=message.message_id,
            session_id="s.walks",
            version="0" * 16,
            time=at,
            role="user",
            user_id="s.eve",
            text=f"By the way, I {said} {thing}{day}.",
            characters=40,
        )
        await kit.database["memory_messages"].insert_one(row_of(row))
        await store(kit, [fact(f"eve-{number}", EVE, content, minutes, sources=(message,))])
        if number % 3 == 0:
            await store(kit, [reflection(f"r-eve-{number}", EVE, f"Warms to {thing}{day}.", minutes)])
        shown.append(
            RecentFact(fact_id=f"eve-{number}", version=1, content=content, formed_at=at, valid_from=at)
        )
    blob = Consolidated(
        _id=EVE.key,
        content="Eve walks a lot, and plans a trip to Norway.",
        version=2,
        word_limit=300,
        absorbed=(),
        last_consolidated_at=now() - timedelta(days=2),
        said_at=now() - timedelta(days=2),
        history=(
            BlobVersion(
                version=1,
                content="Eve walks a lot.",
                absorbed=(),
                said_at=now() - timedelta(days=9),
                consolidated_at=now() - timedelta(days=9),
            ),
        ),
        **spread(EVE),
    )
    await store(kit, [blob])
    recent = tuple(reversed(shown[-40:]))
    await kit.put(EVE, blob=blob.content, blob_version=2, active_facts=60, recent_facts=recent)


async def operators(servers: TestServers, browser: Browser, folder: Path) -> None:
    """The operators' pages, over a running system that has something to show."""
    with on_servers(servers, folder) as settings:
        await _operated(settings, browser)


async def _operated(settings: Settings, browser: Browser) -> None:
    async with (
        serving(obey) as models,
        system(fast(settings, models), models) as running,
        doors_of(Kit(running.settings, running.database.client), operator=True) as doors,
    ):
        await _worked(running)
        await _all(browser, doors.url, OPERATORS)
        async with window(browser, doors.url) as watched:
            await watched.open(OPERATORS["dead-letters"])
            await watched.page.get_by_role("link", name="fact-extraction").click()
            await taken(watched.page, "dead-letter")


async def _worked(running: System) -> None:
    session = await running.session("ann", title="Boats")
    await running.told(session, "ann", "fact user: Ann likes tea.", "fact user: Ann owns a boat.")
    await troubled(running, session, "ann")
    budgets = MongoBudgets(running.database, running.settings.names)
    await budgets.set(None, encode_id("ann"), "day", Decimal(5), "ui:desk")
    await budgets.set(encode_id(AGENT), None, "month", Decimal(100), "ui:desk")
    await beside(running, "Ann likes tea.", "Ann likes coffee.")


async def main(servers: TestServers, folder: Path) -> None:
    """Take each picture."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    async with running_browser() as browser:
        await memory(servers, browser)
        await operators(servers, browser, folder)


if __name__ == "__main__":
    os.environ["EDEN_MEMORY_SHARING"] = "team"
    with (
        tempfile.TemporaryDirectory() as made,
        running_servers(os.environ, Path(made), Path(".eden/jars")) as running,
    ):
        asyncio.run(main(running, Path(made)))
