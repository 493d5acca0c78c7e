"""The pages: each number with its run, the same bytes each time, nothing foreign loaded, and no link to nowhere."""

from __future__ import annotations

import base64
import csv
import io
import itertools
import json
import math
import re
import shutil
import statistics
import subprocess
import webbrowser
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import made
import pandas as pd
import pytest
import yaml
from commands import fedrepro
from matplotlib.figure import Figure
from pages import Page, built, plain, single
from PIL import Image, ImageChops, ImageStat

from fedrepro.errors import FedreproError, UsageError
from fedrepro.files import sealed, unsealed
from fedrepro.papers.load import load_paper, load_papers
from fedrepro.records import paths, record
from fedrepro.report import write
from fedrepro.report.page import bands, build, findings, grids, landing, pictures, protocol, provenance
from fedrepro.report.page.align import aligned
from fedrepro.report.page.links import anchor
from fedrepro.results import evaluate
from fedrepro.results.frames import STATUSES

ROOT = Path(__file__).parents[1]
EVIL = '<script>alert("here")</script> & "so on"'
SPEC = (
    made.SPEC.replace('"A toy"', f"'A toy: {EVIL}'")
    + f"""
[[tables.t1.deviations]]
when = {{ method = "Plain", metric = "train_accuracy" }}
reason = '{EVIL}'

[[tables.t1.not_run]]
when = {{ type = "parallel", metric = "test_accuracy" }}
reason = "there was no <time>"

[figures.f1]
kind = "curves"
title = "Figure 1: games"
metrics = ["train_accuracy"]

[[figures.f1.cells]]
dataset = ["Toys"]
type = ["sequential", "parallel"]
method = ["Game (Smooth)"]

[figures.f2]
kind = "levels"
title = "Figure 2: nothing yet"
x = "type"
lines = "method"
not_run = [{{ reason = "nobody has run it" }}]

[[figures.f2.cells]]
dataset = ["Toys"]
type = ["parallel", "sequential"]
method = ["Game (Smooth)"]

[sheets.s1]
title = "Figure 3: toys"
cell = {{ dataset = "Toys" }}

[claims.games-win]
statement = "games <win>"
place = "section 1"
quantity = {{ kind = "final", metric = "test_accuracy" }}
margin = 0

[[claims.games-win.pairs]]
both = {{ dataset = "Toys" }}
high = {{ type = "sequential", method = "Game (Smooth)" }}
low = {{ type = "none", method = "Plain" }}
"""
)


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """The toy paper with everything that a page shows, some of it hostile, and its page."""
    root = made.paper(tmp_path_factory.mktemp("page"), spec=SPEC)
    text = f"# Protocol\n\n## Data\n\n| a |\n|---|\n| {EVIL} |\n\n[b](../b.md)\n"
    (paths.spec(made.NAME, root) / "PROTOCOL.md").write_text(text)
    (root / "papers/b.md").touch()
    loaded = made.records(root, toys_plain=[(0.70, 0.10), (0.71, 0.11), (0.72, 0.15)])
    curve = {"train_accuracy": {1: 0.5, 2: 0.6}}
    for run in made.RUNS[1:]:
        made.watch(loaded, run, dict.fromkeys((0, 1, 2), curve))
        file = paths.run(made.NAME, "game", run, root) / "record.json"
        content = unsealed(file.read_bytes())
        file.write_text(json.dumps(sealed(content | {"resolved": content["resolved"] | {"steps": 7}})))
    sheet = paths.sheet(made.NAME, "s1", root)
    sheet.parent.mkdir(parents=True)
    Image.new("RGB", (1200, 900), "teal").save(sheet)
    rendered(loaded)
    return loaded


def rendered(loaded):
    """Evaluate a paper, and write all of its report."""
    evaluate.write(loaded, evaluate.evaluate(loaded))
    list(write.render_all(loaded.root))


@pytest.fixture(scope="module")
def read(toy):
    """What the toy's page says."""
    return Page(paths.page(made.NAME, toy.root).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def front(toy):
    """What the page about all papers, here of one, says."""
    return Page((toy.root / paths.PAGE).read_text(encoding="utf-8"))


def rows(root, paper, table):
    """The cells of a table as its CSV has them, each with the id of its number on the page."""
    cells = {cell.key: anchor(cell) for cell in load_paper(paper, root).cells(table)}
    found = csv.DictReader(paths.table(paper, table, root)[0].read_text(encoding="utf-8").splitlines())
    keyed = [(tuple(row[k] for k in ("table", "dataset", "variant", "method", "metric")), row) for row in found]
    return [(cells[key], row) for key, row in keyed if ";reading=" not in key[2]]


def spread_out(mean, spread):
    """A number with its spread, in one of the ways in which a page has it."""
    low, dots, high = spread.partition("..")
    return f"{mean} ({low} – {high})" if dots else f"{mean} ± {spread}" if spread else mean


def agrees(read, root, paper, table):
    """Whether the page has every cell of a table as its CSV has it, with the command of its run."""
    for name, row in rows(root, paper, table):
        runs = [run for run in row["run"].split("; ") if run]
        if not runs:
            assert row["status"] == "not-run"
            assert name not in read.data["cells"]
            continue
        shown, verdict = (plain(text) for text in read.cells[name][:2])
        assert shown == (spread_out(row["reproduced"], row["reproduced_spread"]) or "diverged"), name
        assert verdict.endswith(f"{grids.MARKS[row['status']]} {grids.word(row['status'])}"), name
        facts = dict(read.data["cells"][name]["facts"])
        assert facts["published"].startswith(spread_out(row["published"], row["published_spread"])), name
        assert read.traced[name] == [f"{paper}/{run}" for run in runs]
        commands = [read.data["runs"][run]["command"] for run in read.traced[name]]
        assert commands == [f"fedrepro train --paper {paper} --run {run} --out build/{run}" for run in runs]
    return True


def test_rendering_again_gives_the_same_bytes(toy):
    before = {path: path.read_bytes() for path in (paths.page(made.NAME, toy.root), toy.root / paths.PAGE)}
    again = build.render([toy], [evaluate.read(toy)], toy.root)
    assert {path: path.read_bytes() for path in again} == before


def test_every_cell_has_the_numbers_of_the_table_and_the_command_of_its_run(toy, read):
    assert agrees(read, toy.root, made.NAME, "t1")
    name = anchor(toy.cells("t1")[0])
    assert [plain(text) for text in read.cells[name][:2]] == ["71.00 ± 0.82", "-13.88 † outside"]
    assert read.data["cells"][name]["notes"] == [f"Declared deviation: {EVIL}."]


def test_a_cell_that_is_not_run_says_so_and_why(toy, read):
    name = anchor(toy.cells("t1")[-1])
    assert [plain(text) for text in read.cells[name][:2]] == ["–", "○ not run"]
    assert "There was no <time>." in read.shown
    assert "nobody has run it." in read.shown.lower()


def test_a_run_is_there_once_with_what_its_record_says(toy, read):
    assert list(read.data["runs"]) == [f"toy-2022/{run}" for run in made.RUNS]
    shown = read.data["runs"]["toy-2022/toys-game-parallel"]
    found = json.loads((paths.run(made.NAME, "game", "toys-game-parallel", toy.root) / "record.json").read_text())
    assert shown["config"] == found["config"]
    assert shown["defaults"] == {"steps": 7}
    assert shown["seeds"][0][:6] == ["0", "stopped", "40", "2", "58.00", "67.00"]  # 1.5 seconds
    facts = dict(shown["facts"])
    assert facts["stopping rule"] == "training accuracy below 57.50%, after 10 rounds and once above 62.50%"
    assert (facts["device"], facts["versions"], facts["commit"]) == ("cpu, 1 thread", "python 3.11", "none")
    assert (facts["sha256 of the data"], facts["numerics"]) == ("f00d", "engine 1, method 1, data 1")
    assert facts["sha256 of the settings"] == found["identity"]["config"]
    assert facts["trained"] == "2024-01-01 00:00:00Z to 2024-01-01 00:00:01Z"
    for name in ("record.json", "curves.csv"):
        assert (toy.root / "reports" / shown["folder"] / name).exists()


def test_a_commit_with_changes_and_files_without_an_address_are_said():
    assert provenance._commit("0123456789ab+") == "0123456789ab, with changes"
    files = record.Data(dataset="pacs", source="pacs", substitute="pacs (112 px)", files={"a": "f00d"})
    assert "no public address, docs/data.md says what" in provenance._substitute(files)
    assert provenance._substitute(record.Data(dataset="d", source="d", substitute="digits")) == "digits"
    assert provenance._substitute(files.model_copy(update={"substitute": None})) == ""


def test_what_comes_from_files_is_shown_and_not_obeyed(read):
    assert Counter(tag for tag, _ in read.elements)["script"] == 3
    assert "alert(" not in read.text.partition('id="data"')[0].replace("alert(&#34;", "").replace("alert(&quot;", "")
    assert "</script> &" not in read.text
    assert read.shown.count(EVIL) >= 5  # title, reason, protocol


def test_no_link_leads_nowhere_and_no_id_is_there_twice(toy, read, front):
    assert linked({f"{made.NAME}.html": read, "index.html": front}, toy.root)


def linked(pages, root):
    """Whether each link leads to a place of a page, or to a file, and each id is there once in its page."""
    ids = {name: set(page.ids) for name, page in pages.items()}
    for name, page in pages.items():
        assert [each for each, count in Counter(page.ids).items() if count > 1] == []
        for address, _, place in (link.partition("#") for link in page.links):
            if ":" in address:  # of a protocol, to the web
                continue
            target = ids.get(address or name)
            assert target or (root / "reports" / address).is_file(), f"{name}: {address}"
            assert not (target and place) or place in target, f"{name}: {address}#{place}"
    return True


def test_a_browser_loads_nothing_but_the_pages_and_their_pictures(toy, read, front):
    assert {str(address) for address in front.loaded} == {"data:,"}
    pictures = {f"{made.NAME}/figures/f1.svg", f"{made.NAME}/sheets/s1.png"}
    assert {address for address in read.loaded if not str(address).startswith("data:")} == pictures
    assert all((toy.root / "reports" / address).is_file() for address in pictures)


def test_the_single_file_has_everything_and_needs_nothing_else(toy, read):
    path = write.single([toy])
    assert path == toy.root / paths.SINGLE
    whole = Page(path.read_text(encoding="utf-8"))
    assert alone(whole)
    assert (whole.cells, whole.traced, whole.data) == (read.cells, read.traced, read.data)
    assert read.shown.partition("Findings")[2].partition("Files:")[0].replace("Also as csv, md, tex. ", "")[:500] in (
        whole.shown.replace("Also as csv, md, tex. ", "")
    )


def alone(page):
    """Whether a page has its pictures in it, and each of its links leads to a place of its own."""
    assert [address[:60] for address in page.loaded if not str(address).startswith("data:")] == []
    assert {link for link in page.links if not link.startswith("#")} == set()
    return linked({"": page}, Path())


def test_tables_tell_their_heads_apart_and_have_captions(read):
    kinds = Counter(tag for tag, _ in read.elements)
    assert kinds["caption"] == kinds["table"] - 1  # that of the protocol has none
    assert all(attributes.get("scope") for tag, attributes in read.elements if tag == "th")
    images = [attributes for tag, attributes in read.elements if tag == "img"]
    assert len(images) == 2
    assert all(each["alt"] and each["width"] and each["height"] for each in images)


def test_the_summary_says_how_the_paper_fares(read, front):
    verdict = "Largely reproduced: 4 of 5 compared numbers are within tolerance; median difference 1.60 points."
    assert f"{verdict} 1 of 1 claim holds." in read.shown
    assert f"1 number outside tolerance with a reason: {EVIL}." in read.shown
    assert "1 of 6 published numbers is not run: there was no <time>." in read.shown
    assert verdict in front.shown
    assert "Of 6 published numbers, 5 are compared: 4 within tolerance, 1 outside with a reason." in front.shown


def test_headings_are_in_order_and_folded_parts_have_theirs(read, front):
    for page in (read, front):
        levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(below <= above + 1 for above, below in itertools.pairwise(levels))


def test_a_footnote_is_said_once_and_a_reason_is_one(read):
    assert read.shown.count("There was no <time>.") == 1
    noted = [link for link in read.links if ".note" in link]
    assert noted
    assert set(noted) <= {f"#{name}" for name in read.ids}


def cell(status="within", difference=0.0, unit="percent"):
    return SimpleNamespace(status=status, difference=difference, unit=unit)


@pytest.mark.parametrize(
    ("shown", "band"),
    [
        (cell(difference=-1.0), "near0"),
        (cell(difference=1.01), "near1"),
        (cell(difference=-3.01), "near2"),
        (cell(difference=10.0), "near2"),
        (cell(difference=-10.01), "near3"),
        (cell(difference=0.1, unit="norm"), "unscaled"),
        (cell("deviation", 0.5), "deviation"),
        (cell("not-run", math.nan), "not-run"),
    ],
)
def test_a_number_within_a_wide_tolerance_is_told_from_one_that_agrees(shown, band):
    assert bands.band(shown) == band


def test_a_bar_has_every_number_once(toy):
    cells = evaluate.read(toy).cells
    found = bands.bar(cells)
    assert sum(each.count for each in found) == len(cells) == 6
    assert [(each.band, each.count) for each in found][-2:] == [("deviation", 1), ("not-run", 1)]
    assert [each[:2] for each in bands.judged(Counter(holds=2, undecided=1))] == [("holds", 2), ("undecided", 1)]


def test_papers_of_which_most_is_compared_come_first():
    counts = dict.fromkeys(STATUSES, 0)
    parts = [
        {"name": "claims alone", "counts": counts, "verdicts": Counter(undecided=3, fails=1)},
        {"name": "half", "counts": counts | {"within": 9, "not-run": 9}, "verdicts": Counter()},
        {"name": "all", "counts": counts | {"deviation": 2}, "verdicts": Counter()},
        {"name": "claims decided", "counts": counts | {"not-compared": 5}, "verdicts": Counter(holds=1)},
    ]
    names = ["all", "half", "claims decided", "claims alone"]
    assert [part["name"] for part in landing.ordered(parts)] == names


def test_the_picture_has_each_compared_number_where_it_belongs(toy, front):
    cells = evaluate.read(toy).cells
    own = cells[cells.difference.notna()]
    expected = sorted(zip(own.compared_with.map(float), own.reproduced.map(float), strict=True))
    drawn = [attributes for tag, attributes in front.elements if tag == "circle" and "cx" in attributes]
    places = sorted((float(each["cx"]) / 4, 100 - float(each["cy"]) / 4) for each in drawn)
    assert places == [pytest.approx(place, abs=0.02) for place in expected]
    assert sum(each["class"].endswith(" out") for each in drawn) == 1


def test_findings_are_those_of_the_paper_and_of_these_results(toy, tmp_path):
    root = shutil.copytree(toy.root, tmp_path / "copy")
    paper, page = load_paper(made.NAME, root), root / paths.FINDINGS
    page.parent.mkdir()
    counts = paths.summary(made.NAME, root).read_text(encoding="utf-8")
    text = (
        "# All\n\n**No.** Not yet.\n\n## A toy (toy-2022)\n\nPlain.\n\n**It\nlearns.** With <b>, see [there](x.md).\n"
    )
    text += "\n### More\n\n**Twice.**\n\n## Another (other)\n\n**Not this.**\n"
    page.write_text(text + counts)
    found = findings.findings(paper, evaluate.read(paper))
    assert found == [("It learns.", "With &lt;b&gt;, see there."), ("Twice.", "")]
    page.write_text(text + counts.replace("6", "7"))
    assert findings.findings(paper, evaluate.read(paper)) == []


def test_a_claim_has_its_verdict_and_its_evidence(read):
    assert "✓ holds games win games <win> section 1 Measured: final test accuracy; margin: 0 points." in read.shown
    assert "1 comparison: ✓ 1 holds" in read.shown


def test_a_table_of_which_nothing_is_run_is_folded_to_the_published_numbers(tmp_path):
    remark = '\n[[tables.t1.not_run]]\nwhen = { dataset = "Toys" }\nreason = "there was no time"\n'
    toy = made.records(made.paper(tmp_path, spec=made.SPEC + remark))
    rendered(toy)
    read = Page(paths.page(made.NAME, toy.root).read_text(encoding="utf-8"))
    assert read.data == {"cells": {}, "runs": {}}
    assert "No number can be compared: none is run so far." in read.shown
    assert "None of 6 published numbers is run so far: there was no time." in read.shown
    assert "66.56 ± 1.58" in plain(read.shown)
    assert "reproduced" not in read.shown.partition("○ 6 not run")[2].partition("Why")[0].partition("Also as")[0]


def test_a_missing_record_or_picture_stops_the_page(toy, tmp_path):
    root = shutil.copytree(toy.root, tmp_path / "copy")
    sheet = paths.sheet(made.NAME, "s1", root)
    sheet.write_text("no picture")
    with pytest.raises(FedreproError, match=r"s1\.png cannot be read: run `dvc repro`"):
        list(write.render_all(root))
    shutil.copy(paths.sheet(made.NAME, "s1", toy.root), sheet)
    (paths.run(made.NAME, "plain", "toys-plain", root) / "record.json").unlink()
    remedy = r"toys-plain/record\.json is missing: run `fedrepro train --paper toy-2022 --run toys-plain`"
    with pytest.raises(FedreproError, match=remedy):
        list(write.render_all(root))
    paths.frame(made.NAME, "cells", root).unlink()
    with pytest.raises(FedreproError, match=r"cells\.csv is missing: run `fedrepro evaluate toy-2022`"):
        list(write.render_all(root))


def test_images_within_a_picture_are_made_smaller(tmp_path):
    noise = Image.effect_noise((238, 119), 60)
    drawn = Figure(figsize=(2, 1))
    drawn.add_axes((0, 0, 1, 1)).imshow(noise, cmap="gray", vmin=0, vmax=255, interpolation="none")
    drawn.savefig(tmp_path / "noise.svg")
    assert "image-rendering:pixelated" in (tmp_path / "noise.svg").read_text()
    svg = unquote(pictures.picture(tmp_path / "noise.svg")["src"])
    assert "image-rendering" not in svg
    (within,) = re.findall(r'xlink:href="data:image/webp;base64,([^"]*)"', svg)
    small = Image.open(io.BytesIO(base64.b64decode(within)))
    assert small.size == (144, 72)
    apart = ImageChops.difference(small.convert("L"), noise.resize(small.size, Image.Resampling.LANCZOS))
    assert ImageStat.Stat(apart).mean[0] < 12


def test_pictures_are_made_smaller(toy):
    drawn = pictures.picture(paths.sheet(made.NAME, "s1", toy.root))
    assert (drawn["width"], drawn["height"]) == (800, 600)
    file = paths.figure(made.NAME, "f1", toy.root)
    svg = unquote(pictures.picture(file)["src"])
    assert svg.startswith("data:image/svg+xml,<svg ")
    short, whole = (re.findall(r' d="([^"]*)"', text) for text in (svg, file.read_text()))
    assert max(len(part) for path in short for part in re.findall(r"\.(\d+)", path)) == 1
    assert sum(map(len, short)) < 0.9 * sum(map(len, whole))
    for path, own in zip(short, whole, strict=True):
        assert spelled(path) == [(letter, pytest.approx(numbers, abs=0.0501)) for letter, numbers in spelled(own)]


@pytest.mark.parametrize(
    ("path", "short"),
    [
        ("M 1.04 2.06 \nL 3.3 -0.04 \nL 3.35 0.2 \nz", "M1 2.1l2.3-2.1 .1 .2z"),
        ("M 0 10.25 L 0 10.25 L -1.5 10", "M0 10.2l0 0-1.5-.2"),
        ("M 1 1 L 2 2 z M 5 5 L 5.26 10.5", "M1 1l1 1z M5 5l.3 5.5"),
        ("M 0 0 \nQ 1 2 3 4 \nL 5.55 6 L 7 -8.25 z", "M 0 0 \nQ 1 2 3 4 \nL5.5 6l1.5-14.2z"),
    ],
)
def test_straight_lines_are_written_by_their_steps_worked_by_hand(path, short):
    assert pictures._shorter(path) == short


def spelled(path):
    """The commands of a path: letter and numbers, each line with its own letter and the place that it leads to."""
    found = []
    for letter, written in re.findall(r"([A-Za-z])([^A-Za-z]*)", path):
        numbers = [float(number) for number in re.findall(r"-?\d*\.?\d+", written)]
        if letter not in "MLl":
            found.append((letter, numbers))
            continue
        for i, place in enumerate(map(list, zip(numbers[::2], numbers[1::2], strict=True))):
            at = [here + step for here, step in zip(found[-1][1], place, strict=True)] if letter == "l" else place
            found.append(("M" if letter == "M" and i == 0 else "L", at))
    return found


def test_the_protocol_is_shown_below_the_page_s_headings():
    links = "[a](b.md) [g](../../docs/g.md#h) [c](#d) [e](https://example.org)"
    shown = protocol.html(f"# T\n\n## Data\n\n{links}\n\n|h|\n|-|\n|x|\n\n<table>\n", "../papers/toy")
    assert shown.startswith("<h3>Data</h3>")
    assert '<a href="../papers/toy/b.md">' in shown
    assert '<a href="../docs/g.md#h">' in shown
    assert (shown.count('<div class="scroll"'), shown.count("<table>"), shown.count("&lt;table&gt;")) == (1, 1, 1)
    assert '<a href="#d">' in shown
    assert '<a href="https://example.org">' in shown
    assert '<th scope="col">h</th>' in shown


@pytest.mark.parametrize(
    ("texts", "lined"),
    [
        (["1.5", "12.25", "–"], ["_1.5", "12.25", "–"]),
        (["+0.47 x", "\u221212.3 x"], ["_+0.47 x", "\u221212.3_ x"]),
        (["7 ± 0.5", "61.25 ± 10.5"], ["_7.__ ± _0.5", "61.25 ± 10.5"]),
        (["186 (9–120)", "25"], ["186 (9–120)", "_25"]),
        ([], []),
    ],
)
def test_numbers_stand_under_one_another(texts, lined):
    shown = [text.replace("\u2007", "_").replace("\u2008", ".") for text in aligned(texts)]
    assert shown == lined


def test_the_page_is_opened_in_a_browser_if_there_is_one(toy, monkeypatch):
    opened = []
    monkeypatch.chdir(toy.root)
    monkeypatch.setattr(webbrowser, "open", lambda address: not opened.append(address))
    assert fedrepro("report", "--open").out.splitlines()[-1] == "wrote reports/index.html"
    assert opened == [(toy.root / paths.PAGE).resolve().as_uri()]
    monkeypatch.setattr(webbrowser, "open", lambda address: False)
    with pytest.raises(UsageError, match=r"no browser was found: open reports/index\.html in one yourself"):
        write.browse(paths.PAGE)
    assert fedrepro("report", "--open").code == 2


# The page of all papers


@pytest.fixture(scope="module")
def whole():
    """All papers in one file."""
    return Page(single(ROOT))


@pytest.fixture(scope="module")
def pages():
    """The pages of all papers by their names."""
    return {name: Page(text) for name, text in built(ROOT).items()}


@pytest.mark.slow
def test_the_whole_page_has_every_published_number_as_the_tables_have_it(whole):
    for paper in load_papers(ROOT):
        assert all(agrees(whole, ROOT, paper.name, table) for table in paper.spec.tables)
        assert set(paper.spec.tables) <= {name.partition(".")[2] for name in whole.ids}


MADE_OF = re.compile(r"(-?[\d.]+) \(")


def test_a_number_that_no_record_has_is_made_of_what_is_said(whole):
    found = Counter()
    for cell in whole.data["cells"].values():
        facts = dict(cell["facts"])
        for how, middle in (("mean of", statistics.fmean), ("median of", statistics.median)):
            if how in facts:
                values = [float(number) for number in MADE_OF.findall(facts[how])]
                shown = facts["reproduced"].split()[0]
                rounded = 10.0 ** -len(shown.partition(".")[2])
                assert middle(values) == pytest.approx(float(shown), abs=rounded)
                found[how] += 1
    assert found["mean of"] >= 70
    assert found["median of"] >= 68


def test_a_median_of_the_page_is_that_of_the_curves(whole):
    name, cell = next(each for each in whole.data["cells"].items() if each[0].startswith("f2u-2019.table5"))
    (run,) = whole.traced[name]
    with (ROOT / "reports" / whole.data["runs"][run]["folder"] / "curves.csv").open(encoding="utf-8") as file:
        looks = [float(row["value"]) for row in csv.DictReader(file) if row["metric"] == "fd_mnist_cnn"]
    assert float(dict(cell["facts"])["reproduced"].split()[0]) == pytest.approx(statistics.median(looks), abs=0.005)


def test_the_reproduced_numbers_of_a_column_stand_under_one_another(whole):
    compared = 0
    for paper in load_papers(ROOT):
        for table in paper.spec.tables:
            before: dict[str, set[int]] = {}  # metric -> how much stands before the first decimal point
            for cell in paper.cells(table):
                ahead, point, _ = whole.cells.get(anchor(cell), [""])[0].strip("\n ").partition(".")
                if point:
                    before.setdefault(cell.metric, set()).add(len(ahead))
                    compared += 1
            assert all(len(found) == 1 for found in before.values()), f"{paper.name} {table}"
    assert compared > 400


def test_the_orders_within_a_table_are_shown_where_they_are_compared(whole):
    found = 0
    for paper in load_papers(ROOT):
        for table, spec in paper.spec.tables.items():
            path = paths.table(paper.name, table, ROOT)[1]
            told = re.findall(r"^- (.*): paper (.*); here (.*); Kendall's tau (\S+), ", path.read_text("utf-8"), re.M)
            own = whole.shown.partition(f" {spec.title} – here")[2].partition("How to read this table")[0]
            for column, printed, ours, tau in told:
                orders = f"in print ?{re.escape(printed)} ?here ?{re.escape(ours)}"
                assert re.search(rf"{re.escape(column)} \S+ \w+ Kendall's tau {tau} {orders}", own)
            found += len(told)
    assert found


def test_the_single_file_stands_alone_and_is_small_enough_to_send(whole):
    assert alone(whole)
    assert len(whole.text.encode()) < 8e6


@pytest.mark.slow
def test_each_paper_has_findings_and_is_judged_in_a_sentence(pages):
    for paper in load_papers(ROOT):
        page = pages[f"{paper.name}.html"]
        assert sum(attributes.get("class") == "finding" for _, attributes in page.elements) >= 4
        assert re.search(
            r"(Largely|Partly|Hardly) reproduced: |No number can be compared: |only its claims", page.shown
        )
        assert len(re.findall(r"\d+ of \d+ claims hold", page.shown)) == 1
        assert paper.spec.title in pages["index.html"].shown


def test_a_tolerance_is_said_once_on_a_page(pages):
    assert pages["flgames-2022.html"].shown.count("neither its stopping thresholds nor the budget") == 1


def test_the_links_of_all_pages_lead_somewhere(pages):
    assert linked(pages, ROOT)
    assert set(pages) == {"index.html", *(f"{paper.name}.html" for paper in load_papers(ROOT))}


def test_the_pages_and_the_single_file_have_the_same_numbers(whole, pages):
    cells = {name: shown for page in pages.values() for name, shown in page.cells.items()}
    assert cells == whole.cells
    every = pd.concat([evaluate.read(paper).cells for paper in load_papers(ROOT)])
    run = every.groupby(["paper", "table"]).status.transform(lambda statuses: (statuses != "not-run").any())
    assert len(cells) == run.sum() + every[run].readings.map(len).sum() > 600


def test_what_is_vendored_has_its_licence():
    folder = ROOT / "fedrepro/report/templates"
    assert "released into the public domain" in (folder / "sortable.LICENSE").read_text()
    assert "see sortable.LICENSE" in (folder / "sortable.js").read_text().splitlines()[0]


def test_the_pages_are_published_with_the_files_that_they_link_to(tmp_path):
    workflow = yaml.safe_load((ROOT / ".github/workflows/pages.yml").read_text())
    steps = workflow["jobs"]["publish"]["steps"]
    assert workflow["permissions"] == {"contents": "read", "pages": "write", "id-token": "write"}
    built, site = (step["run"] for step in steps if "run" in step)
    assert built == "make setup && .venv/bin/fedrepro report"
    upload = next(step["with"] for step in steps if step.get("uses", "").startswith("actions/upload-pages-artifact"))
    for command in ("git init -q", "git add -A", "git -c user.name=n -c user.email=e commit -qm one"):
        (tmp_path / "reports").mkdir(exist_ok=True)
        (tmp_path / "reports/a.csv").touch()
        subprocess.run(command.split(), cwd=tmp_path, check=True)
    (tmp_path / "reports/index.html").touch()
    subprocess.run(["bash", "-euo", "pipefail", "-c", site], cwd=tmp_path, check=True)
    there = {str(path.relative_to(tmp_path / upload["path"])) for path in (tmp_path / upload["path"]).rglob("*.*")}
    assert there == {"index.html", "reports/index.html", "reports/a.csv"}
    assert 'href="reports/index.html"' in (tmp_path / upload["path"] / "index.html").read_text()
