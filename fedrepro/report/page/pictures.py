"""Figures and sample sheets: their sizes where they are linked, or the pictures themselves as data addresses."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path
from urllib.parse import quote

from PIL import Image

from fedrepro.errors import FedreproError

WIDTH, WITHIN = 800, 144  # most pixels across a raster picture, and across one within an SVG: more than are shown
QUALITY, METHOD = 55, 2  # of WebP; a larger method takes twice as long for 4% fewer bytes
PIXELS = 4 / 3  # in a point
UNQUOTED = " /:;,=()!*+@?|-._~"  # beside letters and digits, in a data address within double quotes
LINES = re.compile(r"[ML][^A-Za-z]*(?:L[^A-Za-z]*)+")  # straight ones, from a point that is named
LEFT_OUT = re.compile(r'<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>|<!--.*?-->|(?<=<g) id="[^"]*"', re.S)
RASTER = re.compile(r'"data:image/png;base64,([^"]*)"')
PIXELATED = re.compile(r'(<image [^>]*) style="image-rendering:[^"]*"')  # a browser scales it smoothly instead


def size(path: Path) -> dict[str, int]:
    """Width and height of an image, in pixels. Raises FedreproError where the file is missing or is no picture."""
    try:
        width, height = _points(path.read_text(encoding="utf-8")) if path.suffix == ".svg" else _pixels(path)
    except (OSError, ValueError, TypeError) as error:
        raise _unread(path) from error
    return {"width": width, "height": height}


def picture(path: Path) -> dict[str, str | int]:
    """Source, width and height of an image: an SVG with coordinates to a tenth of a point, or a PNG as WebP.

    Raises FedreproError where the file is missing or is no picture.
    """
    try:
        content = path.read_bytes()
        source, width, height = _svg(content.decode()) if path.suffix == ".svg" else _webp(content)
    except (OSError, ValueError, TypeError) as error:
        raise _unread(path) from error
    return {"src": source, "width": width, "height": height}


def _unread(path: Path) -> FedreproError:
    return FedreproError(f"{path} cannot be read: run `dvc repro`, which makes it.")


def _pixels(path: Path) -> tuple[int, int]:
    with Image.open(path) as image:
        return image.size


def _points(text: str) -> tuple[int, int]:
    """Width and height of an SVG, in pixels."""
    sides = (re.search(rf'<svg [^>]*\b{side}="([\d.]+)pt"', text)[1] for side in ("width", "height"))
    width, height = (round(PIXELS * float(side)) for side in sides)
    return width, height


def _svg(text: str) -> tuple[str, int, int]:
    sides = _points(text)
    text = RASTER.sub(lambda png: f'"{_webp(base64.b64decode(png[1]), WITHIN)[0]}"', LEFT_OUT.sub("", text))
    text = re.sub(r'(?<= [dxy]=")[^"]*', lambda place: _shorter(place[0]), PIXELATED.sub(r"\1", text))
    text = re.sub(r"\s*\n\s*", " ", re.sub(r">\s+<", "><", text.strip()))
    return f"data:image/svg+xml,{quote(text, safe=UNQUOTED)}", *sides


def _shorter(place: str) -> str:
    """A coordinate, or a path, with tenths of a point."""
    place = re.sub(r"\d+\.\d+", lambda number: _rounded(float(number[0])), place)
    return LINES.sub(lambda lines: _by_steps(lines[0]), place)


def _by_steps(lines: str) -> str:
    """Straight lines as their first point and steps from it, in whole tenths, so that no rounding adds up."""
    tenths = [round(10 * float(number)) for number in re.findall(r"-?\d[\d.]*", lines)]
    steps = [there - here for here, there in zip(tenths, tenths[2:], strict=False)]
    return f"{lines[0]}{_spelled(tenths[:2])}l{_spelled(steps)}"


def _spelled(tenths: list[int]) -> str:
    """Numbers as an SVG path may have them: without a zero before the point, and without a space before a sign."""
    short = " ".join(_rounded(each / 10) for each in tenths)
    return re.sub(r"\b0(?=\.)", "", short).replace(" -", "-")


def _rounded(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _webp(content: bytes, width: int = WIDTH) -> tuple[str, int, int]:
    """At most `width` pixels wide."""
    image, out = Image.open(io.BytesIO(content)), io.BytesIO()
    image = image if image.mode == "RGBA" else image.convert("RGB")
    if image.width > width:
        image = image.resize((width, round(image.height * width / image.width)), Image.Resampling.LANCZOS)
    image.save(out, "WEBP", quality=QUALITY, method=METHOD)
    return f"data:image/webp;base64,{base64.b64encode(out.getvalue()).decode()}", image.width, image.height
