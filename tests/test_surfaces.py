"""Figure 1 of fedgma-2021: the surfaces are those of the text, and their average has the minima that it says."""

import math

import numpy as np
import pytest
from lifted import REPO

from fedrepro.papers.load import load_paper
from fedrepro.report import surfaces

LOCAL, GLOBAL = (-0.5, 0.5), {"a": (0.5, -0.5), "b": (-0.5, -0.5)}
STEP = 1 / 40
X, Y = np.meshgrid(*[np.arange(-40, 41) * STEP] * 2)


@pytest.fixture(scope="module")
def paper():
    return load_paper("fedgma-2021", REPO)


@pytest.fixture(scope="module")
def clients(paper):
    return paper.spec.surfaces["fig1"].clients


def minima(values):
    """Where a grid is lower than at all eight neighbours, the lowest first."""
    inner = values[1:-1, 1:-1]
    shifted = [
        values[1 + i : values.shape[0] - 1 + i, 1 + j : values.shape[1] - 1 + j]
        for i in (-1, 0, 1)
        for j in (-1, 0, 1)
        if i or j
    ]
    rows, columns = np.nonzero(np.all([inner < each for each in shifted], axis=0))
    found = [(values[r + 1, c + 1], (X[r + 1, c + 1], Y[r + 1, c + 1])) for r, c in zip(rows, columns, strict=True)]
    return [at for _, at in sorted(found)]


def test_a_client_has_its_two_minima_and_is_what_the_closed_form_says(clients):
    for name, wells in clients.items():
        assert minima(surfaces.loss(wells, X, Y)) == [pytest.approx(GLOBAL[name]), pytest.approx(LOCAL)]
        apart = math.dist(GLOBAL[name], LOCAL)  # 1.41 and 1
        tail = math.exp(-(apart**2) / (2 * 0.25**2))
        assert surfaces.loss(wells, *map(np.array, GLOBAL[name])) == pytest.approx(-1 - 0.4 * tail, abs=1e-12)
        assert surfaces.loss(wells, *map(np.array, LOCAL)) == pytest.approx(-0.4 - tail, abs=1e-12)


def test_the_average_is_deepest_where_one_client_alone_is_low(clients):
    both = surfaces.average(clients.values(), X, Y)
    assert np.array_equal(both, sum(surfaces.loss(wells, X, Y) for wells in clients.values()) / 2)
    *deepest, last = minima(both)
    assert sorted(deepest) == [pytest.approx(GLOBAL["b"]), pytest.approx(GLOBAL["a"])]
    assert last == pytest.approx(LOCAL)
    worst = np.max([surfaces.loss(wells, X, Y) for wells in clients.values()], axis=0)
    assert (X.flat[worst.argmin()], Y.flat[worst.argmin()]) == pytest.approx(LOCAL, abs=STEP)
    for at in GLOBAL.values():
        assert max(surfaces.loss(wells, *map(np.array, at)) for wells in clients.values()) > -0.01


def test_the_picture_is_the_same_each_time_and_has_a_panel_for_each(paper):
    drawn = surfaces.svg(paper, "fig1")
    assert drawn == surfaces.svg(paper, "fig1")
    assert [text in drawn for text in ("client A", "client B", "average", "Depths, 0.4 and 1")] == [True] * 4
    assert len(drawn) < 300_000
