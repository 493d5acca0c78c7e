"""What a reader is shown of f2u-2019."""

import numpy as np
import parts
import pytest
from test_spec_gans import CLOUD, EMPTY, FD, LINE, beside, distances
from test_spec_gans import sheet as images

from fedrepro.errors import FedreproError
from fedrepro.report import claims, galleries, latex, layout, plots, tables


@pytest.fixture
def made_up(tmp_path):
    return beside(tmp_path)


def sheet(paper, table):
    return layout.sheet(paper, table, parts.frame(paper, "cells", table=table))


def test_a_run_that_diverged_is_a_footnote(made_up):
    paper, write = made_up("desk")
    write("mnist-f2u-non-b32", {}, status="diverged")
    assert "Seed 0 diverged in round 5000" in " ".join(sheet(paper, "table1").notes)


def test_a_substitute_is_never_compared_and_ranked_within_each_column(made_up):
    paper, write = made_up("desk")
    # Published order in `non`: F2A < F2U < MD-GAN < GMAN* < GMAN-0. Here the last two and the first two swap.
    for method, value in zip(("f2u", "f2a", "md-gan", "gman-0", "gman"), (3.0, 4.0, 5.0, 6.0, 7.0), strict=True):
        write(f"mnist-{method}-non-b32", distances(FD, value - 1, value + 1, 2500))
    write("mnist-md-gan-full-b32", distances(FD, 8, 8, 2500))
    drawn = sheet(paper, "table1")
    assert "no FID" in drawn.title
    heads = [column.head for column in drawn.columns]
    assert heads[-4:] == ["paper (Inception FID, not comparable)", FD, "seeds", "rounds"]
    first, alone = (
        line for line in drawn.told if "Kendall" in line and ":" in line and "paper F" in line or "paper MD" in line
    )
    assert first == (
        "MNIST, overlap non: paper F2A < F2U < MD-GAN < GMAN* < GMAN-0; here F2U < F2A < MD-GAN < GMAN-0 < GMAN*; "
        "Kendall's tau 0.60, undecided."
    )
    assert alone == "MNIST, overlap full: paper MD-GAN; here MD-GAN; Kendall's tau –, undecided."
    assert "Floor (two samples of real images from each other): 1.50." in drawn.legend
    assert any("values are never compared" in line for line in drawn.legend)
    text = tables.csv_text(parts.frame(paper, "cells", table="table1"))
    assert "22.19,16.64..29.23,3.00,2.00..4.00,3," in text
    assert ",not-compared,mnist-f2u-non-b32," in text
    for draw in (layout.markdown, latex.table):
        assert "3.00 (2.00 " in draw(drawn)


def test_the_rankings_of_a_budget_that_is_not_compared_are_not_said(made_up):
    paper, write = made_up("smoke")
    write("mnist-gman-mod-b32", distances("fd_digits_cnn", 3, 4, 2))
    write("mnist-gman-0-mod-b32", distances("fd_digits_cnn", 4, 5, 2))
    assert not any("Kendall" in line for line in sheet(paper, "table1").told)


def test_figure_4_says_that_it_has_the_median_over_batches_and_checkpoints(made_up):
    paper, write = made_up("paper")
    write("mnist-f2u-non-n10-b32", distances("fid", 20, 30))
    write("mnist-f2u-non-n10-b64", distances("fid", 21, 90))
    points = parts.frame(paper, "points", figure="fig4")
    (axis,) = plots.figure(paper, "fig4", points).axes
    assert (axis.get_ylabel(), axis.get_yscale()) == ("fid, median", "log")
    drawn = plots.figure(paper, "fig4", points)
    drawn.draw_without_rendering()
    shown = [text.get_text() for text in drawn.axes[0].get_yticklabels()]
    assert {"20", "50"} <= {*shown}  # plain numbers
    said = plots.caption(paper, "fig4", points)
    assert "Median over the seeds, the ends of 2 equal parts of training and batch" in said
    assert "4 values" in said


def test_figure_4_says_what_stands_in_for_the_fid(made_up):
    paper, write = made_up("desk")
    write("mnist-f2u-non-n20-b32", distances(FD, 2, 3, 2500))
    assert "which is no FID" in plots.caption(paper, "fig4", parts.frame(paper, "points", figure="fig4"))


def test_claims_about_a_level_and_a_stand_in_are_explained(made_up):
    paper, write = made_up("desk")
    write("mnist-md-gan-non-b32", distances(FD, 8, 8, 2500))
    legend = claims.sheet(paper, parts.frame(paper, "claims")).legend
    level = "Where there is no second cell, the difference is the number of the first, and the margin is a level."
    assert level in legend
    assert any(line.startswith("fid: Fréchet distance") for line in legend)


def test_a_gallery_of_points_has_a_panel_for_each_run_and_counts_what_is_outside(made_up):
    paper, write = made_up("desk")
    write("mixture-1d-md-gan", {}, samples=("samples.csv", EMPTY.encode()), status="diverged")
    write("mixture-1d-f2u", {}, samples=("samples.csv", LINE.encode()), modes_covered=1)
    write("mixture-2d-f2u", {}, samples=("samples.csv", CLOUD.encode()), modes_covered=3)
    points = parts.frame(paper, "points", figure="fig5-plain")
    (empty, line), (blank, plane) = np.array(plots.figure(paper, "fig5-plain", points).axes).reshape(2, 2)
    assert (empty.get_title(), line.get_title(), empty.get_ylabel(), blank.get_ylabel()) == (
        "MD-GAN",
        "F2U",
        "1D",
        "2D",
    )
    assert (len(empty.patches), len(line.patches)) == (3 * galleries.BINS, 3 * galleries.BINS + 1)
    assert (len(blank.collections), len(plane.collections)) == (0, 4)
    assert [text.get_text() for text in plane.texts] == ["1 of 2 outside"]
    assert plane.get_xlim() == (-5, 5)
    below = ["modes covered: 1\n(mean of 3 seeds)", "modes covered: 3\n(mean of 3 seeds)"]
    assert [panel.get_xlabel() for panel in (empty, line, blank, plane)] == ["", below[0], "", below[1]]
    said = plots.caption(paper, "fig5-plain", points)
    assert "End of training, first seed that did not diverge." in said
    assert "1D, MD-GAN" not in said
    assert "MD-GAN, 1D: 3 diverged" in said


def test_a_longer_run_is_a_line_beside_the_usual_ones(made_up):
    paper, write = made_up("desk")
    for run, ends in (("f2u-non-b32-i25000", (2500, 25000)), ("f2u-non-b32", (2500, 5000)), ("f2a-non-b32", (2500,))):
        curve = dict.fromkeys(ends, 8.0)
        write(f"mnist-{run}", {"classes_covered": curve, FD: curve})
    drawn = plots.figure(paper, "iterations", parts.frame(paper, "points", figure="iterations"))
    assert [axis.get_ylabel() for axis in drawn.axes] == ["classes covered", "fd mnist cnn"]
    lines = {line.get_label(): list(line.get_xdata()) for line in drawn.axes[0].lines}
    assert lines == {"F2U, iterations 25000": [2500, 25000], "F2U": [2500, 5000], "F2A": [2500]}


def test_another_reading_of_the_loss_is_a_row_below_with_its_source(made_up):
    paper, write = made_up("paper")
    for run, value in (("bce-b32", 20), ("bce-b64", 24), ("bce-b32-linear", 50), ("bce-b64-linear", 52), ("b32", 40)):
        write(f"mnist-f2u-non-{run}", distances("fid", value, value))
    drawn = sheet(paper, "table5")
    place = [column.head for column in drawn.columns].index("reading")
    (row,) = (row for row in drawn.rows if row[place].text == "linear output" and "51.00" in str(row[-3]))
    (above,) = (other for other in drawn.rows if "22.00" in str(other[-3]))
    assert drawn.rows.index(row) == drawn.rows.index(above) + 1
    assert above[place].text == "–"
    assert "SpectralNormalizationKeras" in drawn.notes[row[place + 1].notes[0] - 1]
    orders = [line for line in drawn.told if "Kendall's tau" in line]
    assert [", reading linear output: paper" in line for line in orders] == [False, False, True]  # after a legend


def test_a_gallery_of_images_shows_the_sheets_pixel_by_pixel(made_up):
    paper, write = made_up("desk")
    for method, value in (("md-gan", 10), ("f2a", 200)):
        write(f"mnist-{method}-full-b32", {}, samples=("samples.png", images(value)))
    points = parts.frame(paper, "points", figure="fig6-mnist")
    assert [(p.x, p.line) for p in points.itertuples()] == [("full × 32", "MD-GAN"), ("full × 32", "F2A")]
    drawn = plots.figure(paper, "fig6-mnist", points)
    assert [np.unique(axis.images[0].get_array()).tolist() for axis in drawn.axes] == [[10], [200]]
    first, again = (plots.svg(paper, "fig6-mnist", points) for _ in range(2))
    assert first == again


def test_samples_that_are_not_those_of_the_frame_are_refused(made_up):
    paper, write = made_up("desk")
    write("mixture-1d-f2u", {}, samples=("samples.csv", LINE.encode()), modes_covered=1)
    write("mixture-1d-f2a", {}, samples=("samples.csv", LINE.encode()), modes_covered=1)
    points = parts.frame(paper, "points", figure="fig5-plain")
    path = parts.folder(paper, "mixture-1d-f2u") / "samples.csv"
    path.write_text(CLOUD)
    refused = r"samples\.csv is not what the figure was made of: run `fedrepro evaluate f2u-2019`"
    with pytest.raises(FedreproError, match=refused):
        plots.figure(paper, "fig5-plain", points)
    path.unlink()
    with pytest.raises(FedreproError, match=refused):
        plots.figure(paper, "fig5-plain", points)
