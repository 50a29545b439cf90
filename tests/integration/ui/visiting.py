"""Sign in to the inspector, and look for what keeps people out of it."""

from pathlib import Path
from typing import Any

from playwright.async_api import Page

from tests.browser import Watched
from tests.integration.doors.conftest import Doors
from tests.integration.doors.world import Key

AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text()
ALL: dict[str, Any] = {
    "type": "tag",
    "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
}


async def secret_of(doors: Doors, key: Key) -> str:
    """The secret of a new key."""
    secret, _ = await doors.keys.create(
        key.name,
        agents=key.agents,
        users=key.users,
        rights=key.rights,  # pyright: ignore[reportArgumentType]
    )
    return secret


async def signed_in(watched: Watched, doors: Doors, key: Key) -> None:
    """Sign in with a new key."""
    secret = await secret_of(doors, key)
    await watched.open("/ui/sign-in?to=/ui/agents")
    await watched.page.get_by_label("API key").fill(secret)
    await watched.page.get_by_role("button", name="Sign in").click()
    await watched.page.wait_for_url("**/ui/agents")


async def faults(page: Page, rules: dict[str, Any] = ALL) -> list[tuple[str, str]]:
    """Violations that axe-core finds: the rule, and the first element that breaks it."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE)
    found: Any = await page.evaluate("rules => axe.run(document, {runOnly: rules})", rules)
    return [(rule["id"], rule["nodes"][0]["html"][:200]) for rule in found["violations"]]
