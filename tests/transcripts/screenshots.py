"""The pictures of docs/inspector.md: pages of the inspector over an example's memory, taken in Chromium.

`python -m tests.transcripts.screenshots`. MongoDB of its own, or EDEN_MONGODB_URI.
"""

import asyncio
import os
import tempfile
from pathlib import Path
from urllib.parse import quote

from tests.browser import NARROW, running_browser, window
from tests.integration.context.harness import kit_for
from tests.integration.doors.conftest import doors_of, namespaced
from tests.integration.python.stored import ADA
from tests.integration.ui.world import fill
from tests.servers import TestServers, running_servers

FOLDER = Path(__file__).parents[2] / "docs/images"
OF_ADA = f"agent=a&user=ada&key={quote(ADA.key)}"
MEDIUM, TALL = {"width": 900, "height": 760}, {"width": 900, "height": 1_060}
PICTURES = (
    ("inspector-scope.png", f"/ui/scope?{OF_ADA}", "light", MEDIUM),
    ("inspector-fact.png", "/ui/fact?agent=a&user=ada&id=moved", "dark", TALL),
    ("inspector-narrow.png", "/ui", "light", NARROW),
)


async def main(servers: TestServers) -> None:
    """Take each picture."""
    settings = namespaced(servers)
    async with kit_for(settings) as kit:
        await fill(kit, attacked=False)
        async with doors_of(kit) as doors, running_browser() as browser:
            for name, path, scheme, size in PICTURES:
                async with window(browser, doors.url, color_scheme=scheme, viewport=size) as page:
                    await page.open(path)
                    await page.page.screenshot(path=FOLDER / name)
        await kit.client.drop_database(settings.mongodb.database)


if __name__ == "__main__":
    os.environ["EDEN_MEMORY_SHARING"] = "team"
    with tempfile.TemporaryDirectory() as folder:
        given = {"EDEN_KAFKA_BOOTSTRAP": "127.0.0.1:9", **os.environ}
        with running_servers(given, Path(folder), Path(".eden/jars")) as running:
            asyncio.run(main(running))
