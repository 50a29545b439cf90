"""Debian's Chromium, driven by Playwright; tests that need it are skipped where it is not installed."""

import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
NARROW, WIDE = {"width": 400, "height": 800}, {"width": 1_280, "height": 900}


def chromium() -> str:
    """The browser's path; skips the test where there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name)) is not None), None)
    if found is None:
        pytest.skip("no Chromium is installed (Debian: apt-get install chromium)")
    return found


@asynccontextmanager
async def running_browser() -> AsyncGenerator[Browser]:
    """A browser without a window."""
    path = chromium()
    async with async_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = await playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            yield browser
        finally:
            await browser.close()


class Watched:
    """A page, and whatever went wrong in it: errors, requests to other hosts, dialogs."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url
        self.wrong: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("dialog", self._dialog)
        page.on("request", self._asked)

    async def open(self, path: str) -> int:
        """Go there; the status of the answer."""
        answer = await self.page.goto(path if path.startswith("http") else self.url + path)
        assert answer is not None
        return answer.status

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning") and "status of" not in message.text:
            self.wrong.append(f"{message.type}: {message.text}")

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:")):
            self.wrong.append(f"request: {request.url}")

    async def _dialog(self, dialog: Any) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        await dialog.dismiss()


@asynccontextmanager
async def window(browser: Browser, url: str, **options: Any) -> AsyncGenerator[Watched]:
    """A page with cookies of its own."""
    wanted: Any = {"viewport": WIDE} | options
    context: BrowserContext = await browser.new_context(**wanted)
    try:
        yield Watched(await context.new_page(), url)
    finally:
        await context.close()
