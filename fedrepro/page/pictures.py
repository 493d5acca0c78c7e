"""Figures and sample sheets of the page, in it as data addresses: smaller than their files, the same for the same."""

from __future__ import annotations

import base64
import hashlib
import io
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from PIL import Image

from fedrepro import figures, panels, plot
from fedrepro.errors import FedreproError
from fedrepro.page.links import Link, run_link, seen
from fedrepro.schema import Gallery, words
from fedrepro.spec import Paper

WIDTH = 800  # pixels of a raster picture; the page's column is narrower
QUALITY = 60  # of WebP
PIXELS = 4 / 3  # in a point
UNQUOTED = " /:;,=()!*+@?|-._~"  # beside letters and digits, in a data address within double quotes
LINES = re.compile(r"[ML][^A-Za-z]*(?:L[^A-Za-z]*)+")  # straight ones, each of which may do without its letter
DATA = re.compile(r'src="data:[^"]*"')


@dataclass(frozen=True)
class Picture:
    """An image for the page. `address`: its bytes. `width`, `height`: in pixels. `source`: the sha256 of its file."""

    address: str
    width: int
    height: int
    source: str


@dataclass(frozen=True)
class Figure:
    """A figure or a sample sheet. `file`: where the picture is, seen from the page. `runs`: those behind it."""

    id: str
    title: str
    caption: str
    picture: Picture
    file: str
    runs: list[Link]


def figure(paper: Paper, name: str) -> Figure:
    """A figure that is run. Raises FedreproError where it has no points, or is not drawn yet."""
    points, spec = figures.stored(paper, name), paper.figure(name)
    caption = (panels if isinstance(spec, Gallery) else plot).caption(paper, name, points)
    svg, png = figures.pictures(paper.name, name, paper.root)
    path = png if isinstance(spec, Gallery) else svg  # a gallery's SVG has pictures in it
    runs = [run_link(paper, run) for run in paper.figure_runs(name)]
    return Figure(f"{paper.name}.{name}", spec.title, caption, picture(path), seen(paper, path), runs)


def sample_sheet(paper: Paper, name: str) -> Figure:
    """What the clients' data look like. Raises FedreproError where it is not drawn yet."""
    spec, path = paper.spec.sheets[name], paper.sheet_path(name)
    caption = f"Sample sheet of {words(spec.cell)}: data of each client that is shown, seed 0."
    return Figure(f"{paper.name}.sheet.{name}", spec.title, caption, picture(path), seen(paper, path), [])


def picture(path: Path) -> Picture:
    """An SVG with coordinates to a tenth of a point, or a PNG at most WIDTH pixels wide as WebP.

    Raises FedreproError where the file is missing or is no picture.
    """
    try:
        content = path.read_bytes()
        drawn = _svg(content.decode()) if path.suffix == ".svg" else _webp(content)
    except (OSError, ValueError, TypeError) as error:
        raise FedreproError(f"{path} cannot be read: run `dvc repro`, which makes it.") from error
    return Picture(*drawn, hashlib.sha256(content).hexdigest())


def unpictured(page: str) -> str:
    """A page without the bytes of its pictures, which depend on the machine's libraries; their sources' sums stay."""
    return DATA.sub('src=""', page)


def _svg(text: str) -> tuple[str, int, int]:
    width, height = (float(re.search(rf'<svg [^>]*\b{side}="([\d.]+)pt"', text)[1]) for side in ("width", "height"))
    text = re.sub(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r'(?<= [dxy]=")[^"]*', lambda place: _shorter(place[0]), text)
    text = re.sub(r"\s*\n\s*", " ", text).strip()
    return f"data:image/svg+xml,{quote(text, safe=UNQUOTED)}", round(PIXELS * width), round(PIXELS * height)


def _shorter(place: str) -> str:
    """A coordinate, or a path, with tenths of a point."""
    place = re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), place)
    return LINES.sub(lambda lines: lines[0][0] + lines[0][1:].replace("L ", ""), place)


def _webp(content: bytes) -> tuple[str, int, int]:
    image, out = Image.open(io.BytesIO(content)).convert("RGB"), io.BytesIO()
    if image.width > WIDTH:
        image = image.resize((WIDTH, round(image.height * WIDTH / image.width)), Image.Resampling.LANCZOS)
    image.save(out, "WEBP", quality=QUALITY)
    return f"data:image/webp;base64,{base64.b64encode(out.getvalue()).decode()}", image.width, image.height
