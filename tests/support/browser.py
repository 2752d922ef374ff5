"""A real browser without a window: Debian's chromium, driven by playwright; and axe, which looks for obstacles."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import axe_playwright_python
from playwright.sync_api import Browser, Page, expect, sync_playwright

AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
PICTURES = Path(__file__).resolve().parents[2] / "docs" / "images"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]

PATIENCE = 60_000
"""Milliseconds that the page has to show what is expected: the machine may be busy."""


@contextmanager
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium")
    assert program is not None, "chromium is missing: `python3.11 tools/bootstrap.py browser` installs it (root)"
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        found = playwright.chromium.launch(executable_path=program, args=options)
        try:
            yield found
        finally:
            found.close()


class Look:
    """One page, and everything that it did which it should not."""

    def __init__(self, browser: Browser, origin: str, scheme: str = "light") -> None:
        self._context = browser.new_context(
            viewport={"width": 1280, "height": 900}, color_scheme="dark" if scheme == "dark" else "light"
        )
        self.page: Page = self._context.new_page()
        self.wrong: list[str] = []
        self.page.on("request", lambda r: None if r.url.startswith(origin) else self.wrong.append(f"asked {r.url}"))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)

    def obstacles(self) -> list[str]:
        """What axe finds: rule, and the first element."""
        self.page.evaluate(AXE.read_text("utf-8"))
        run = "rules => axe.run({ runOnly: { type: 'tag', values: rules } })"
        found: list[dict[str, Any]] = self.page.evaluate(run, RULES)["violations"]
        return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found]

    def picture(self, name: str) -> None:
        """Writes a picture of docs/, if TAILRACE_SCREENSHOTS asks for it."""
        if os.environ.get("TAILRACE_SCREENSHOTS"):
            PICTURES.mkdir(exist_ok=True)
            self.page.screenshot(path=PICTURES / f"console-{name}.png")

    def close(self) -> None:
        self._context.close()
