"""The set-up help of the page, over a real PostgreSQL that no manifest names."""

from pathlib import Path

import pytest
from playwright.sync_api import expect
from pydantic import SecretStr

from support.browser import Look, browser
from support.console import TOKEN, console
from support.postgres import PostgresServer
from tailrace.cli.console.trial import in_memory
from tailrace.databases.secret_files import read_password

pytestmark = pytest.mark.postgres(18)


def test_a_source_is_tried_from_the_page_and_its_manifest_comes_out(postgres: PostgresServer, tmp_path: Path) -> None:
    postgres.execute("CREATE TABLE orders (id int PRIMARY KEY, area polygon); CREATE TABLE notes (t text)")
    with browser() as chromium, console([]) as shown:
        look = Look(chromium, shown.url)
        page = look.page
        page.goto(f"{shown.url}/#token={TOKEN}")
        page.get_by_role("link", name="Set up a new Replicator").click()
        for label, text in (
            ("Host", postgres.host),
            ("Port", str(postgres.port)),
            ("Database name", "postgres"),
            ("User", "postgres"),
            ("Password", "a secret of the test"),
            ("Target location", (tmp_path / "lake").as_uri()),
            ("Change log location", (tmp_path / "log").as_uri()),
        ):
            page.get_by_label(label).fill(text)
        assert look.obstacles() == []
        page.get_by_role("button", name="Check source and tables").click()
        tables = page.get_by_role("region", name="2 tables that public.* selects")
        expect(tables).to_contain_text("area (polygon)")
        manifest = page.locator("#manifest")
        expect(manifest).to_contain_text('- "public.orders"')
        expect(manifest).to_contain_text("passwordFile: password.txt")
        assert "a secret of the test" not in (manifest.text_content() or "")
        page.get_by_label("copy public.orders").uncheck()
        expect(manifest).not_to_contain_text("public.orders")
        assert look.obstacles() == []
        assert not any(b"a secret of the test" in f.read_bytes() for f in tmp_path.rglob("*") if f.is_file())
        kept = "() => JSON.stringify([{...localStorage}, {...sessionStorage}, location.href])"
        assert "a secret of the test" not in page.evaluate(kept)

        page.get_by_label("Target location").fill("nowhere")
        page.get_by_role("button", name="Check source and tables").click()
        expect(page.get_by_text("write file:///path")).to_be_visible()
        look.close()
        assert all("422" in text for text in look.wrong)


def test_a_password_is_read_from_memory_and_is_gone_afterwards() -> None:
    with in_memory(SecretStr("über geheim")) as path:
        assert path is not None and read_password(path) == read_password(path) == "über geheim".encode()
    assert not Path(path).exists()
    with in_memory(None) as path:
        assert path is None
