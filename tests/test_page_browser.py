"""The page in a real browser: a wide screen and a phone, light and dark, by hand and by keyboard."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from pages import built
from playwright.sync_api import expect, sync_playwright

from fedrepro.records.config import RunConfig

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
SIZES = {"wide": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}
COLOURS = "(e) => [getComputedStyle(e).color, getComputedStyle(e).backgroundColor]"


@pytest.fixture(scope="module")
def browser():
    """A Chromium of the system's; nothing is ever downloaded."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"there is no browser: install one of {', '.join(BROWSERS)}")
    with sync_playwright() as driver:
        yield driver.chromium.launch(executable_path=found, args=["--no-sandbox"])


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """The page of all papers."""
    path = tmp_path_factory.mktemp("page") / "index.html"
    path.write_text(built(ROOT), encoding="utf-8")
    return path


@pytest.fixture
def visit(browser, file):
    """visit(...) -> the page of all papers in a window of these options; it must load without a word on the console."""
    opened = []

    def open_page(size="wide", **options):
        context = browser.new_context(viewport=SIZES[size], reduced_motion="reduce", **options)
        opened.append(context)
        tab, said = context.new_page(), []
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("request", lambda request: said.append(request.url) if request.url.startswith("http") else None)
        tab.goto(file.as_uri())
        assert said == []
        return tab

    yield open_page
    for context in opened:
        context.close()


def number(tab):
    """The first reproduced number of the page."""
    return tab.locator("td.reproduced a.runs").first


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_never_wider_than_the_screen(visit, size, scheme):
    tab = visit(size, color_scheme=scheme)
    tab.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert tab.evaluate("document.documentElement.scrollWidth") == SIZES[size]["width"]


def test_no_picture_is_broken(visit):
    tab = visit()
    tab.evaluate("Promise.all([...document.images].map((each) => { each.loading = 'eager'; return each.decode(); }))")
    assert tab.evaluate("[...document.images].every((each) => each.naturalWidth > 100)")


def test_dark_is_dark_and_light_is_light(visit):
    sums = {}
    for scheme in ("light", "dark"):
        colour = visit(color_scheme=scheme).eval_on_selector("body", COLOURS)[1]
        sums[scheme] = sum(map(int, colour.removeprefix("rgb(").removesuffix(")").split(",")))
    assert sums["dark"] < 150 < 600 < sums["light"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_verdicts_can_be_read_on_their_ground(visit, scheme):
    tab = visit(color_scheme=scheme)
    grounds = [tab.eval_on_selector(each, COLOURS)[1] for each in ("body", ".scroll")]
    for status in ("within", "deviation", "outside", "not-compared", "not-run"):
        colour = tab.eval_on_selector(f".key .{status}", COLOURS)[0]
        assert min(contrast(colour, ground) for ground in grounds) >= 4.5, status


def contrast(one, other):
    """The contrast of two colours (WCAG 2.2, 1.4.3)."""

    def luminance(colour):
        parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
        linear = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    dark, light = sorted(map(luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("size", SIZES)
def test_a_number_opens_where_it_comes_from(visit, size):
    tab = visit(size)
    link = number(tab)
    shown, (run, *_) = link.inner_text(), link.get_attribute("data-runs").split()
    link.click()
    dialog = tab.locator("dialog")
    text = dialog.inner_text()
    paper, name = run.split("/")
    assert f"fedrepro train --paper {paper} --run {name} --out build/{name}" in text
    assert f"fedrepro evaluate {paper} && fedrepro report" in text
    table, section = (link.locator(f"xpath=ancestor::section[{level}]") for level in (1, 2))
    expect(dialog.get_by_role("heading", level=2)).to_have_text(table.locator("h4").inner_text())
    assert section.locator("h2").inner_text() in text
    assert shown.replace("\u2007", "") in text.replace("\u2007", "")
    record = json.loads((ROOT / "reports" / link.get_attribute("href")).read_text())
    assert (record["paper"], record["run"]) == (paper, name)
    assert record["identity"]["data"] in text
    assert record["identity"]["config"] in text
    config, resolved = RunConfig.model_validate(record["config"]), record["resolved"]
    assert [json.loads(each) for each in dialog.locator("details pre").all_text_contents()] == [
        config.model_dump(mode="json"),
        {key: value for key, value in resolved.items() if key not in config.hyper},
    ]
    assert dialog.evaluate("(e) => e.scrollWidth <= e.clientWidth")
    tab.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(link).to_be_focused()


def test_a_number_opens_by_keyboard_and_closes_by_its_button(visit):
    tab = visit()
    number(tab).focus()
    tab.keyboard.press("Enter")
    dialog = tab.locator("dialog")
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()


def test_a_command_is_copied_or_selected(visit):
    tab = visit()
    number(tab).click()
    button = tab.locator(".command button").first
    button.click()
    expect(button).to_have_text(re.compile("^(Copied|Selected)$"))  # the clipboard answers in its own time


def test_a_run_behind_a_figure_opens_too(visit):
    tab = visit()
    figure = tab.locator("figure.drawn").first
    figure.locator("summary").click()
    figure.locator("a.runs").first.click()
    assert "fedrepro train" in tab.locator("dialog").inner_text()


def test_links_lead_to_what_they_name(visit):
    tab = visit()
    tab.locator("table.matrix tbody th[scope=row] a").first.click()
    name = tab.evaluate("decodeURIComponent(location.hash.slice(1))")
    assert abs(tab.locator(f'[id="{name}"]').bounding_box()["y"]) < SIZES["wide"]["height"] / 2


def test_the_first_stop_of_the_keyboard_leads_past_the_contents(visit):
    tab = visit()
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.className") == "skip"
    tab.keyboard.press("Enter")
    expect(tab).to_have_url(re.compile("#summary$"))


def test_the_contents_stay_beside_the_text_and_fold_on_a_phone(visit):
    wide, phone = visit("wide"), visit("phone")
    wide.evaluate("scrollTo(0, 5000)")
    assert wide.locator("nav.side").bounding_box()["y"] == 0
    assert not phone.locator("nav.side").is_visible()
    contents = phone.locator("details.contents")
    assert not contents.locator("nav").is_visible()
    contents.locator("summary").first.click()
    assert contents.locator("nav").is_visible()


def test_without_a_script_the_numbers_are_there_and_lead_to_their_records(visit):
    tab = visit(java_script_enabled=False)
    link = number(tab)
    assert link.is_visible()
    assert (ROOT / "reports" / link.get_attribute("href")).resolve().name == "record.json"
    assert "Without JavaScript" in tab.locator("noscript").inner_text()
