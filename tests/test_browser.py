"""Pages as a browser shows them: nothing is fetched from elsewhere, nothing fails, and the explorer
answers. Needs Chromium (Debian's package, or the path in $CHROMIUM)."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import opteq

pytest.importorskip("playwright")
CHROMIUM = (
    os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
)
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
    pytest.mark.xdist_group("browser"),
    # What gradio and the asyncio loop of playwright leave open is theirs.
    pytest.mark.filterwarnings("default"),
]
QUICK: dict[str, Any] = {
    "train": {"epochs": 3, "batch_size": 32},
    "data": {"limit_train": 96, "limit_test": 40},
}


@dataclass
class Seen:
    """What went wrong on a page."""

    errors: list[str] = field(default_factory=list)
    abroad: list[str] = field(default_factory=list)

    def watch(self, page: Any, home: str) -> None:
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        page.on("request", lambda request: self._request(request.url, home))

    def _request(self, url: str, home: str) -> None:
        if not url.startswith((home, "data:", "blob:")):
            self.abroad.append(url)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium) -> Iterator[Any]:
    page = chromium.new_page(viewport={"width": 1300, "height": 900})
    page.set_default_timeout(60_000)
    yield page
    page.close()


@pytest.fixture(scope="module")
def comparison(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("browser") / "compared"
    opteq.compare(["geq_digits", "resnet_digits"], output=folder, quiet=True, **QUICK)
    return folder


def test_reports_open_from_disk(comparison, page):
    reports = sorted(comparison.rglob("*.html"))
    assert len(reports) >= 3  # the comparison, and each of its runs
    for report in reports:
        seen = Seen()
        seen.watch(page, "file://")
        page.goto(report.as_uri())
        assert page.locator("h1").count() == 1, report
        assert page.locator("svg, img").count() >= 1, report
        broken = "els => els.filter(e => !e.complete || !e.naturalWidth).length"
        assert page.locator("img").evaluate_all(broken) == 0, report
        # Nothing is wider than the page.
        wide = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(wide) <= 1, report
        assert not seen.errors, report
        assert not seen.abroad, report


def test_a_comparison_leads_to_its_runs(comparison, page):
    page.goto((comparison / "report.html").as_uri())
    assert page.get_by_role("heading", name="Learning").count() == 1
    page.get_by_role("link", name="0").first.click()
    assert page.locator("h1").inner_text() == "geq_digits"


def test_the_explorer_answers(page, tmp_path):
    from playwright.sync_api import expect

    expect.set_options(timeout=60_000)
    pytest.importorskip("gradio")
    served = opteq.explore("geq_digits", "mopteq_digits", browser=False, block=False)
    try:
        seen = Seen()
        seen.watch(page, served.local_url)
        page.goto(served.local_url)
        words = page.locator("#words-0")
        expect(words).to_contain_text("Taken for")
        for i in range(2):
            expect(page.locator(f"#maps-{i} img")).to_have_count(1)
            expect(page.locator(f"#course-{i} img")).to_have_count(1)

        # Digits are shown whole, their names beside them, on a narrow page as well.
        for width in (420, 1300):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate(_WIDEST) <= width
            digit, name, fit = page.evaluate(_THUMBNAIL)
            assert abs(digit["width"] - digit["height"]) <= 1 or fit == "contain"
            assert digit["bottom"] <= name["top"]

        # Another image, noise on it, and gates that are nearly shut.
        for change in (_pick, _add_noise, _raise_gamma):
            before = words.inner_text()
            change(page)
            expect(words).not_to_have_text(before, use_inner_text=True)
            expect(words).to_contain_text("Taken for")
        expect(page.locator("#noise input[type=number]")).to_have_value("0.4")

        page.get_by_label("a drawing").click()
        expect(page.locator("#status")).to_contain_text("Nothing is drawn yet")
        _draw(page)
        for i in range(2):
            expect(page.locator(f"#words-{i}")).to_contain_text("Taken for")

        page.get_by_label("a file").click()
        expect(page.locator("#status")).to_contain_text("There is no file yet")
        broken = tmp_path / "broken.png"
        broken.write_bytes(b"no image")
        page.locator("#upload input[type=file]").set_input_files(broken)
        expect(page.locator("#status")).to_contain_text("broken.png is not an image")
        large = tmp_path / "large.png"
        large.write_bytes(bytes(11 * 2**20))
        page.locator("#upload [aria-label='Clear'], #upload [aria-label='Remove']").first.click()
        page.locator("#upload input[type=file]").set_input_files(large)
        expect(page.get_by_text("exceed the maximum allowed size").first).to_be_visible()
        assert not seen.abroad
        assert not [error for error in seen.errors if "413" not in error]
    finally:
        served.close(verbose=False)


_WIDEST = """() => Math.max(...[...document.querySelectorAll(".answer, .answer img")]
    .map(part => part.getBoundingClientRect().right))"""
_THUMBNAIL = """() => {
    const item = document.querySelector("#gallery .thumbnail-item");
    const image = item.querySelector("img"), name = item.querySelector(".caption-label");
    return [image.getBoundingClientRect().toJSON(), name.getBoundingClientRect().toJSON(),
        getComputedStyle(image).objectFit];
}"""


def _pick(page: Any) -> None:
    page.locator("#gallery .thumbnail-item").nth(5).click()


def _add_noise(page: Any) -> None:
    page.locator("#noise input[type=number]").fill("0.4")
    page.locator("#noise input[type=number]").press("Enter")


def _raise_gamma(page: Any) -> None:
    page.locator("#gamma input").click()
    page.get_by_role("option", name="8 times").click()


def _draw(page: Any) -> None:
    canvas = page.locator("#canvas canvas").first
    # The brush is taken up by the page itself.
    page.locator("#canvas").get_by_text("select the draw tool").wait_for(state="detached")
    box = canvas.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y - 70)
    page.mouse.down()
    for k in range(12):
        page.mouse.move(x, y - 70 + 12 * k)
    page.mouse.up()
