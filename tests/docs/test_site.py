"""The web site: strict build, no broken link, and use in a browser without a server or a network."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from support import hvdrun
from support.hvdrun import ROOT

MADE_BY_SETUP = ROOT / ".cache/docs/made-with"
LIMIT_MS = 60_000


@pytest.fixture(scope="module")
def site() -> pathlib.Path:
    """build/docs/html, built anew; the build checks every link and anchor."""
    if shutil.which("mandoc") is None:
        pytest.skip("the manual pages need mandoc (apt install mandoc)")
    if not MADE_BY_SETUP.exists():
        pytest.skip("no Sphinx in .cache/docs (scripts/setup --tests, or scripts/docs)")
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/docs"), "--check"], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / "build/docs/html"


@pytest.fixture
def page(site: pathlib.Path) -> Iterator[Any]:
    """The first page in Chromium, read from its file; a request to another host fails the test."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("the site is looked at in chromium (apt install chromium)")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": 1300, "height": 900}, color_scheme="light")
        asked: list[str] = []
        opened.on("request", lambda request: asked.append(request.url))
        opened.goto(f"file://{site}/index.html", timeout=LIMIT_MS)
        yield opened
        browser.close()
        assert asked and not [url for url in asked if not url.startswith(("file:", "data:"))], asked


def test_search_finds_a_word_of_a_manual_page(page: Any) -> None:
    page.fill("input[name=q]", "record_stream")
    page.press("input[name=q]", "Enter")
    page.wait_for_selector("#search-results li a", timeout=LIMIT_MS)
    found = page.locator("#search-results li a").all_inner_texts()
    assert "hvd-gpu(7)" in found, found
    page.click("#search-results li a:has-text('hvd-gpu(7)')")
    page.wait_for_selector("h1:has-text('hvd-gpu(7)')", timeout=LIMIT_MS)


def background(page: Any) -> int:
    """The brightness of the page: the sum of red, green and blue."""
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(int(part) for part in re.findall(r"\d+", colour)[:3])


def test_dark_mode(page: Any) -> None:
    assert background(page) > 600
    for _ in range(3):  # the button cycles through system, light and dark
        page.click(".theme-toggle >> visible=true")
        if page.get_attribute("body", "data-theme") == "dark":
            break
    assert background(page) < 200
    page.click("a:has-text('Quick start') >> visible=true")
    page.wait_for_selector("h1:has-text('Quick start')", timeout=LIMIT_MS)
    assert background(page) < 200, "another page forgets it"


def test_the_pictures_are_shown(page: Any) -> None:
    for name in ("session", "timeline", "report", "speed"):
        assert page.evaluate(f"document.querySelector('img[src*={name}]').naturalWidth") > 100, name


# ---- manual pages


PAGES = sorted((ROOT / "man").glob("*.[1-9]"))


def test_every_manual_page_is_installed_and_known_to_hvdrun() -> None:
    installed = set(re.findall(r"'([\w.-]+\.[1-9])'", (ROOT / "man/meson.build").read_text()))
    assert installed == {page.name for page in PAGES}
    seen = re.search(r"^\.Sh SEE ALSO\n((?:\.Xr .*\n)+)", (ROOT / "man/hvdrun.1").read_text(), re.MULTILINE)
    assert seen is not None
    named = {".".join(words) for words in re.findall(r"^\.Xr ([\w.-]+) (\d)", seen[1], re.MULTILINE)}
    assert {page.name for page in PAGES} - {"hvdrun.1"} <= named


def test_manual_pages_refer_to_pages_that_are_there() -> None:
    ours = {page.name for page in PAGES}
    for page in PAGES:
        for name, section in re.findall(r"^\.Xr (hvd[\w.-]*) (\d)", page.read_text(), re.MULTILINE):
            assert f"{name}.{section}" in ours, (page.name, name, section)


# ---- what the pages tell people to type


def commands() -> list[tuple[str, list[str]]]:
    """(page, words after `hvdrun`) of each command line in the pages: indented, or between backquotes."""
    found = []
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        text = page.read_text()
        lines = re.findall(r"^    hvdrun (.+)$", text, re.MULTILINE) + re.findall(r"`hvdrun ([^`]+)`", text)
        found += [(page.name, line.split("#")[0].split()) for line in lines]
    return found


def test_options_in_the_pages_are_there() -> None:
    table = json.loads(subprocess.run([hvdrun.program(), "--dump-options"], capture_output=True, text=True, check=True).stdout)
    spellings = {spelling for option in table for spelling in option.get("spellings", [])}
    assert len(commands()) > 15 and len(spellings) > 50
    usages: dict[str, set[str]] = {}
    for name in ("ps", "stacks", "top", "timeline", "kill"):  # commands have their own options
        usage = subprocess.run([hvdrun.program(), name, "--help"], capture_output=True, text=True, check=True).stdout
        usages[name] = set(re.findall(r"--\w[\w-]*", usage))
    for page, words in commands():
        known = usages.get(words[0], spellings) if words else spellings
        for word in words:
            if word in ("--", "-m") or word.endswith((".py", ".pkl")):
                break  # the following words are the job's
            if word.startswith("-") and not word[1:].isdigit():
                assert word.rstrip(";").split("=")[0] in known, (page, words)


def test_pages_link_to_what_is_in_the_tree() -> None:
    """The pages' links also work in the source tree."""
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)\s#:]+)(?:#[^)\s]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page}: {target}"
