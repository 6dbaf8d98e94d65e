"""A browser, where there is one, and pages opened from disk with everything they do written down."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from tests.waiting import LONGEST_MS

if TYPE_CHECKING:
    from pathlib import Path

FLAGS = (
    "no-sandbox",
    "disable-gpu",
    "disable-quic",
    "disable-background-networking",
    "disable-component-update",
    "disable-sync",
)
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@dataclass
class BrowserTab:
    """A page and what it did: requests that leave the disk, messages, errors."""

    page: Any
    requests: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)

    def __getattr__(self, name):
        return getattr(self.page, name)

    def text(self, selector):
        return self.page.inner_text(selector)

    def rows(self):
        """The cases that the table shows, as their ids."""
        return self.page.eval_on_selector_all("#table tbody th", "cells => cells.map(c => c.textContent)")

    def when_ready(self, drawn=True):
        self.page.wait_for_selector("html[data-ready]")
        if drawn and self.page.query_selector("[data-chart]"):
            self.page.wait_for_selector("html[data-drawn]")
        return self

    def wait_for_case(self):
        """Wait for a case's candidates to be there; its name."""
        self.page.wait_for_selector("#case[open] #case-body > *")
        return self.text("#case-title")

    def clean(self):
        assert self.requests == []
        assert self.messages == []


def new_context(browser: Any, **options: Any) -> Any:
    """A context of its own whose waiting is bounded, and no measure of speed."""
    context = browser.new_context(**options)
    context.set_default_timeout(LONGEST_MS)
    return context


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium; tests skip with the reason where it or Playwright is absent.

    One a module: while Playwright is on, this thread has an event loop, and tests of other modules run their own.
    """
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright for Python is not installed")
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed (Debian: apt install chromium)")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=[f"--{flag}" for flag in FLAGS])
        yield launched
        launched.close()


@pytest.fixture
def visit(browser):
    """visit(path, fragment, width=..., scheme=...): the page of a file, whatever leaves the disk refused."""
    contexts = []

    def open_tab(
        path: Path, fragment: str = "", *, width: int = 1400, height: int = 900, scheme: str = "light", **more: Any
    ):
        context = new_context(browser, viewport={"width": width, "height": height}, color_scheme=scheme, **more)
        contexts.append(context)
        found = BrowserTab(context.new_page())
        found.page.on("console", lambda message: found.messages.append(f"{message.type}: {message.text}"))
        found.page.on("pageerror", lambda error: found.messages.append(f"error: {error}"))

        def decide(route):
            local = route.request.url.startswith(("file:", "data:", "blob:"))
            if not local:
                found.requests.append(route.request.url)
            route.continue_() if local else route.abort()

        found.page.route("**/*", decide)
        found.page.goto(path.as_uri() + fragment, wait_until="commit")
        return found

    yield open_tab
    for context in contexts:
        context.close()
