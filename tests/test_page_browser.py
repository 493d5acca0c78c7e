"""The pages in a real browser: a wide screen and a phone, light and dark, by hand and by keyboard."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from pages import built
from playwright.sync_api import expect, sync_playwright

from fedrepro.papers.load import load_paper
from fedrepro.records.config import RunConfig
from fedrepro.report import plots
from fedrepro.results import evaluate

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
SIZES = {"wide": {"width": 1280, "height": 800}, "phone": {"width": 390, "height": 844}}
PAGES = ("index", "f2u-2019", "fedaug-2022", "fedgma-2021", "flgames-2022", "gma-2022")
UNFOLD = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
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
def folder(tmp_path_factory):
    """The pages of all papers beside the files that they link to."""
    root = tmp_path_factory.mktemp("site")
    for name in ("docs", "papers", "runs"):
        (root / name).symlink_to(ROOT / name)
    folder = root / "reports"
    folder.mkdir()
    for paper in PAGES[1:]:
        (folder / paper).symlink_to(ROOT / "reports" / paper)
    for name, text in built(ROOT).items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def visit(browser, folder):
    """visit(...) -> a page in a window of these options; it must load without a word on the console."""
    opened = []

    def open_page(size="wide", page="flgames-2022", **options):
        context = browser.new_context(viewport=SIZES[size], reduced_motion="reduce", **options)
        opened.append(context)
        tab, said = context.new_page(), []
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("request", lambda request: said.append(request.url) if request.url.startswith("http") else None)
        tab.goto((folder / f"{page}.html").as_uri())
        assert said == []
        return tab

    yield open_page
    for context in opened:
        context.close()


def number(tab):
    """The first reproduced number of the page."""
    return tab.locator("td.reproduced a.runs").first


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_never_wider_than_the_screen_and_no_table_is_clipped(visit, size, page):
    tab = visit(size, page)
    tab.evaluate(UNFOLD)
    assert tab.evaluate("document.documentElement.scrollWidth") == SIZES[size]["width"]
    assert tab.evaluate("[...document.querySelectorAll('.scroll')].every((e) => e.scrollWidth <= e.clientWidth)")


def test_the_page_about_all_papers_is_one_screen(visit):
    tab = visit(page="index")
    assert tab.evaluate("document.documentElement.scrollHeight") <= SIZES["wide"]["height"]
    assert tab.locator(".cards .card").count() == 5
    assert tab.locator(".scatter circle").count() > 300


def test_a_card_leads_to_the_page_of_its_paper(visit):
    tab = visit(page="index")
    for number, title in enumerate(tab.locator(".card h2").all_inner_texts()):
        tab.locator(".card h2 a").nth(number).click()
        expect(tab.locator("h1")).to_have_text(title)
        assert "claim" in tab.locator("header .verdict").inner_text()
        tab.get_by_role("link", name="All papers").click()


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
    tab = visit(page="flgames-2022", color_scheme=scheme)
    grounds = [tab.eval_on_selector(each, COLOURS)[1] for each in ("body", ".scroll")]
    badge = tab.locator(".badge:not(td .badge)").first
    for status in ("holds", "fails", "undecided", "within", "deviation", "calibrated"):
        badge.evaluate("(e, status) => { e.className = `badge ${status}` }", status)
        colour = badge.evaluate(COLOURS)[0]
        assert min(contrast(colour, ground) for ground in grounds) >= 4.5, status


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_numbers_can_be_read_on_the_shade_of_their_distance(visit, scheme):
    grounds = set()
    for page in ("flgames-2022", "fedaug-2022"):
        tab = visit(page=page, color_scheme=scheme)
        for band in ("near0", "near1", "near2", "unscaled", "deviation"):
            for place in tab.locator(f"td.verdict.{band}").all()[:1]:
                colour, ground = place.evaluate(COLOURS)
                assert contrast(*map(plain, (colour, ground))) >= 4.5, band
                grounds.add((band, ground))
    assert len(grounds) == len({ground for _, ground in grounds}) >= 5  # a colour for each, the same on both pages


def plain(colour):
    """A colour as whole numbers of red, green and blue, which a mixed one is in parts of one."""
    if colour.startswith("color(srgb"):
        red, green, blue = (round(255 * float(part)) for part in colour.removeprefix("color(srgb ")[:-1].split()[:3])
        return f"rgb({red}, {green}, {blue})"
    return colour


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
    table = link.locator("xpath=ancestor::section[1]")
    expect(dialog.get_by_role("heading", level=2)).to_have_text(table.locator("h3").inner_text())
    assert re.search(r"rounds\n\d+", text)  # a phone has them nowhere else
    assert tab.locator("h1").inner_text() in text
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


def test_links_into_folded_parts_open_them(visit):
    tab = visit(page="f2u-2019")
    tab.locator("table.matrix tbody th[scope=row] a").first.click()
    name = tab.evaluate("decodeURIComponent(location.hash.slice(1))")
    expect(tab.locator(f'[id="{name}"] td.reproduced').first).to_be_visible()
    assert abs(tab.locator(f'[id="{name}"]').bounding_box()["y"]) < SIZES["wide"]["height"] / 2
    tab = visit()
    tab.locator("td a.note").first.click()
    expect(tab.locator("li:target")).to_be_visible()


def test_the_first_stop_of_the_keyboard_leads_past_the_links_to_other_papers(visit):
    tab = visit()
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.className") == "skip"
    tab.keyboard.press("Enter")
    expect(tab).to_have_url(re.compile("#flgames-2022$"))


def test_a_column_is_sorted_by_its_numbers_within_the_groups_of_rows(visit):
    tab = visit()
    table = tab.locator('[id="flgames-2022.table1"] table')
    places = (
        "(table, place) => [...table.tBodies].map((body) => [...body.rows].map((row) => row.cells[place]?.innerText))"
    )
    before = table.evaluate(places, 2)
    head = table.locator("thead tr:last-child th").nth(2)
    head.get_by_role("button").focus()
    tab.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-sort", "descending")
    tab.wait_for_timeout(50)  # it sorts after the attribute is set
    after = table.evaluate(places, 2)
    assert after != before
    number = lambda text: float(text.strip("\u2007").split()[0])  # noqa: E731
    for body, sorted_body in zip(before, after, strict=True):
        own = [text for text in body if text]
        assert sorted_body == sorted(own, key=number, reverse=True) if own else sorted_body == body
    head.get_by_role("button").click()
    tab.wait_for_timeout(50)
    assert table.evaluate(places, 2)[-1] == after[-1][::-1]


def test_differences_are_sorted_by_their_distance_and_numbers_that_are_not_there_stand_last(visit):
    tab = visit(page="fedaug-2022")
    table = tab.locator('[id="fedaug-2022.table6"] table')
    table.locator("thead tr:last-child th").nth(3).get_by_role("button").click()
    tab.wait_for_timeout(50)
    keys = (
        "(table) => [...table.tBodies].map((body) => [...body.rows].map((row) => row.cells[3]?.dataset.sort ?? null))"
    )
    groups = [keys for keys in table.evaluate(keys) if None not in keys]
    assert any("" in keys for keys in groups)
    for keys in groups:
        there = [float(key) for key in keys if key]
        assert there == sorted(there, reverse=True)
        assert keys[: len(there)] == [key for key in keys if key]


def test_rows_are_filtered_by_words_and_by_verdict(visit):
    tab = visit()
    rows = tab.locator("table.grid tbody:not(.group) tr:visible")
    every, form = rows.count(), tab.locator("form.filter")
    form.locator("input").fill("FedSGD")
    assert rows.count() == 3  # of three tables
    expect(form.locator("output")).to_have_text("3 rows")
    assert tab.locator("section.table:visible").count() == 3
    form.locator("input").fill("parallel")  # said in the heading above the rows
    assert 0 < rows.count() < every
    form.locator("input").fill("")
    form.locator("select").select_option("near2")
    far = [
        abs(float(text.replace("\u2212", "-").split()[0])) for text in tab.locator("td.near2:visible").all_inner_texts()
    ]
    assert far
    assert all(3 < each <= 10 for each in far)
    form.locator("select").select_option("")
    assert rows.count() == every


def test_a_phone_has_train_and_test_below_each_other_and_the_rest_in_the_dialog(visit):
    tab = visit("phone")
    row = tab.locator("table.grid tbody:not(.group) tr").first
    train, test = (row.locator("td.reproduced").nth(n).bounding_box() for n in range(2))
    assert test["y"] >= train["y"] + train["height"] - 1
    assert max(box["x"] + box["width"] for box in (train, test)) < SIZES["phone"]["width"]
    assert row.locator("td.fact:visible").count() == 0
    row.locator("td.reproduced a").first.click()
    assert re.search(r"seeds\n\d", tab.locator("dialog").inner_text())


def test_a_figure_follows_dark_mode(browser, tmp_path):
    paper = load_paper("flgames-2022", ROOT)
    points = evaluate.read(paper).points
    (tmp_path / "figure.svg").write_text(plots.svg(paper, "fig1a", points[points.figure == "fig1a"]))
    ink = "(e) => getComputedStyle(e).fill"
    found = {}
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme)
        tab = context.new_page()
        tab.goto((tmp_path / "figure.svg").as_uri())
        found[scheme] = [tab.eval_on_selector(each, ink) for each in ("#patch_1 path", "#text_1 text")]
        assert contrast(*found[scheme]) > 12
        context.close()
    assert found["dark"] == ["rgb(27, 31, 36)", "rgb(230, 232, 235)"]


def test_without_a_script_the_numbers_are_there_and_lead_to_their_records(visit):
    tab = visit(java_script_enabled=False)
    link = number(tab)
    assert link.is_visible()
    assert (ROOT / "reports" / link.get_attribute("href")).resolve().name == "record.json"
    assert "Without JavaScript" in tab.locator("noscript").inner_text()
