"""Displays are drawn into any axes, say what they show, and are written with their texts as texts."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from sklearn.exceptions import NotFittedError

from privfed import Box, DPKMeans, DWFKMeans, MergedClusters, Privacy, PrivacyBudget, metrics, plot
from privfed.deep.plot import ClustersDisplay
from privfed.errors import ArgumentError
from privfed.estimators.choosing import SelectionResult, SelectionRow
from privfed.plot.fits import flat, moved
from privfed.plot.style import Display

ROWS = np.random.default_rng(0).normal(size=(240, 3)) + np.repeat([[0.0], [4.0], [9.0]], 80, axis=0)


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def model() -> DWFKMeans:
    return DWFKMeans(3, protocol="plain", tol=1e-9, scale="standard").fit([ROWS[::2], ROWS[1::2]])


def private(**more: object) -> DPKMeans:
    domain = Box(-4.0, 13.0)
    claim = Privacy(
        epsilon=4.0, delta=1e-6, unit="record", neighbours="add-remove", domain=domain, noise="local", **more
    )
    return DPKMeans(3, protocol="plain", privacy=claim).fit([ROWS[::2], ROWS[1::2]])


def selection(model: DWFKMeans, index: str, rule: str) -> SelectionResult:
    rows = [SelectionRow(k, 1.0 / k, None, 3, 4, 100) for k in (2, 3, 4)]
    return SelectionResult(3, index, rule, tuple(rows), (model,) * 3)


def displays(model: DWFKMeans) -> list[Display]:
    merged = MergedClusters(n_clusters=2).join(model)
    found = metrics.profiles(model.federation_, model.cluster_centers_)
    dates = [datetime(2026, 1, 1) + timedelta(days=30 * i) for i in range(3)]
    return [
        plot.ConvergenceDisplay.of({"one": model, "other": model}),
        plot.ClusterMapDisplay.of(model),
        plot.ClusterMapDisplay.of(merged, ["column 0", "column 2"]),
        plot.DendrogramDisplay(merged.tree_, merged.cut_, merged.kept_),
        plot.ProfileDisplay(found.apart, found.sizes, ["age", "weight", "height"]),
        plot.ValidityDisplay.of(
            selection(model, "davies_bouldin", "minimum"), selection(model, "bic", "maximum")
        ),
        plot.ValidityDisplay.of(selection(model, "inertia", "elbow")),
        plot.BudgetDisplay(dates, [0.2, 0.3, 0.1], ["a first fit", "a profile", "a second fit"]),
        ClustersDisplay([1, 2, 2], [2]),
    ]


def texts(figure: Figure) -> dict[str, bool]:
    """Return each text that is drawn -> whether all of it lies in the figure."""
    FigureCanvasAgg(figure).draw()
    whole = figure.bbox.padded(1.0)
    shown = [one for one in figure.findobj(Text) if one.get_text() and one.get_visible()]
    boxes = [(one.get_text(), one.get_window_extent()) for one in shown]
    return {text: whole.contains(*box.min) and whole.contains(*box.max) for text, box in boxes}


@pytest.mark.parametrize("number", range(9))
def test_all_that_a_display_says_lies_in_its_figure_at_the_width_of_a_column(
    number: int, model: DWFKMeans
) -> None:
    display = displays(model)[number]
    said = texts(plot.figure_of(display))
    # Ticks beyond the ends of an axis are never painted.
    assert [text for text, inside in said.items() if not inside and not is_number(text)] == []
    axes = display.figure_.axes[-1] if isinstance(display, plot.ValidityDisplay) else display.ax_
    assert axes.get_xlabel() and display.size[0] <= 7.0


def is_number(text: str) -> bool:
    return not any(one.isalpha() for one in text.replace("mathdefault", "").replace("Jan", ""))


@pytest.mark.parametrize("number", range(9))
def test_a_display_draws_into_axes_that_are_passed_and_returns_them(number: int, model: DWFKMeans) -> None:
    display, (figure, (left, right)) = displays(model)[number], plt.subplots(1, 2)
    assert display.plot(right) is right
    assert (display.ax_, display.figure_) == (right, figure)
    assert right.has_data() or len(figure.axes) > 2
    assert not left.has_data()


def test_class_methods_draw_as_scikit_learns_do(model: DWFKMeans, tmp_path: Path) -> None:
    shown = plot.ConvergenceDisplay.from_estimator(model)
    assert isinstance(shown, plot.ConvergenceDisplay) and shown.figure_.number in plt.get_fignums()
    merged = MergedClusters(n_clusters=2).join(model)
    budget = PrivacyBudget(2.0, 1e-6, "record", "add-remove", tmp_path / "b.db")
    budget.take(share=0.25, purpose="a first fit", domain=Box(0.0, 1.0))
    found = metrics.profiles(model.federation_, model.cluster_centers_)
    _, ax = plt.subplots()
    drawn = [
        plot.ClusterMapDisplay.from_estimator(model, ax),
        plot.DendrogramDisplay.from_estimator(merged, ax),
        plot.ProfileDisplay.from_profiles(found, ["a", "b", "c"], ax=ax),
        plot.ValidityDisplay.from_selection(selection(model, "bic", "minimum"), ax=ax),
        plot.BudgetDisplay.from_budget(budget, ax),
    ]
    assert all(one.ax_ is ax for one in drawn)
    (line,) = [one for one in drawn[-1].ax_.lines if one.get_gid() == "spent"]
    assert line.get_ydata().tolist() == [0.0, 0.25]


def test_sizes_of_a_map_are_those_that_the_fit_released(model: DWFKMeans) -> None:
    assert model.cluster_sizes_.tolist() == [len(one) for one in np.split(ROWS, 3)] or sorted(
        model.cluster_sizes_
    ) == [80, 80, 80]
    display = plot.ClusterMapDisplay.of(model)
    areas = [one.get_sizes()[0] for one in display.plot().collections]
    assert areas == pytest.approx([150.0] * 3)
    noised = private()
    sizes = plot.ClusterMapDisplay.of(noised).sizes
    assert sizes is not None and sizes.tolist() == noised.intervals().sizes.clip(0.0).tolist()


def test_a_map_of_named_columns_is_in_their_units(model: DWFKMeans) -> None:
    display = plot.ClusterMapDisplay.of(model, [2, 0])
    expected = model.scaling_.original(model.cluster_centers_)[:, [2, 0]]
    np.testing.assert_allclose(display.history[-1], expected)
    assert display.axes == ("column 2", "column 0")


def test_movements_of_models_whose_number_changes_count_from_the_nearest() -> None:
    two = [np.array([[0.0, 0.0]]), np.array([[3.0, 4.0], [0.0, 1.0]]), np.array([[3.0, 5.0]])]
    assert moved(two) == pytest.approx([np.sqrt(26.0), 1.0])
    assert moved([np.zeros((2, 2)), np.ones((2, 2))]) == pytest.approx([2.0])


def test_rounds_are_whole_numbers_and_zeros_stand_at_the_foot() -> None:
    ax = plot.ConvergenceDisplay({"masked": [1e-15, 0.0]}, 1e-6).plot()
    assert ax.get_xticks().tolist() == np.rint(ax.get_xticks()).tolist()
    assert ax.get_yscale() == "log" and ax.get_ylim()[0] < 1e-15
    still = plot.ConvergenceDisplay({"masked": [0.0]}).plot()
    assert still.get_yticks().tolist() == []
    # What is not known is not still.
    assert len(plot.ConvergenceDisplay({"masked": [np.nan, 1.0]}).plot().lines) == 1


def test_an_index_says_whether_lower_is_better(model: DWFKMeans) -> None:
    shown = plot.ValidityDisplay.from_selection(
        selection(model, "davies_bouldin", "minimum"), selection(model, "bic", "maximum")
    )
    labels = [one.get_ylabel() for one in shown.figure_.axes if one.get_ylabel()]
    assert ["lower is better" in labels[0], "higher is better" in labels[1]] == [True, True]


def test_centers_of_three_columns_and_more_lie_on_their_principal_axes() -> None:
    history = np.random.default_rng(1).normal(size=(4, 5, 6))
    points, names = flat(history, list("abcdef"))
    assert points.shape == (4, 5, 2) and all("principal axis" in one for one in names)


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_equal_figures_are_equal_files(kind: str, model: DWFKMeans, tmp_path: Path) -> None:
    paths = [tmp_path / "a" / f"p.{kind}", tmp_path / "b" / f"p.{kind}"]
    for path in paths:
        figure = plot.figure_of(plot.ClusterMapDisplay.of(model), plot.ConvergenceDisplay.of(model))
        assert plot.save(figure, path) == path
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_claim_is_two_sentences_below_and_whole_in_the_metadata(tmp_path: Path) -> None:
    model = private()
    claim = model.privacy_claim_
    figure = plot.figure_of(plot.ClusterMapDisplay.of(model), claim=claim)
    said = figure.get_supxlabel().replace("\n", " ")
    assert said.count(". ") + said.endswith(".") == 2 and len(said) < 160 and "(4, 1e-06)" in said
    plot.save(figure, tmp_path / "p.svg", claim)
    document = (tmp_path / "p.svg").read_text()
    assert claim.line in ElementTree.fromstring(document).findtext(".//{*}description")
    # Texts are texts, so that the fonts of a paper can replace ours.
    words = {one.text for one in ElementTree.fromstring(document).iter("{http://www.w3.org/2000/svg}text")}
    assert "principal axis 1" in " ".join(filter(None, words))
    plot.save(figure, tmp_path / "p.png", claim)
    assert claim.line.encode("latin-1") in (tmp_path / "p.png").read_bytes()
    plot.save(figure, tmp_path / "p.pdf", claim)
    assert b"/Subject" in (tmp_path / "p.pdf").read_bytes()


def test_a_seeded_run_says_that_nobody_is_protected() -> None:
    claim = private(noise_seed=1).privacy_claim_
    assert claim.short.startswith("Not private") and "(4, 1e-06)" not in claim.short


def test_another_ending_is_an_error_that_names_those_that_are_known(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"\.png or \.svg or \.pdf"):
        plot.save(Figure(), tmp_path / "p.bmp")
    assert list(tmp_path.iterdir()) == []


def test_the_style_of_others_is_left_as_it_is(model: DWFKMeans, tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    plot.save(plot.ConvergenceDisplay.from_estimator(model).figure_, tmp_path / "p.svg")
    assert dict(matplotlib.rcParams) == before


def test_centers_that_are_all_alike_are_a_tree_of_one_leaf() -> None:
    """Noise can put all centers in one corner of the domain; SciPy draws no tree without an edge."""
    clients = [np.zeros((20, 2)) + i for i in range(2)]
    fitted = DWFKMeans(n_clusters=2, init=np.array([[0.0, 0.0], [1.0, 1.0]]), protocol="plain").fit(clients)
    fitted.cluster_centers_ = np.zeros_like(fitted.cluster_centers_)
    with pytest.warns(UserWarning, match="center 0"):
        merged = MergedClusters(fitted).join(fitted)
    ax = plot.DendrogramDisplay.from_estimator(merged).ax_
    assert len(merged.tree_) == 0 and [one.get_text() for one in ax.get_xticklabels()] == ["0"]


def test_what_is_not_fitted_and_columns_that_are_not_there_are_named(model: DWFKMeans) -> None:
    for display in (plot.ConvergenceDisplay, plot.ClusterMapDisplay):
        with pytest.raises(NotFittedError):
            display.from_estimator(DWFKMeans(3))
    for columns in (["age", "weight"], ["column 0"], [0, 3], [0, 1, 2]):
        with pytest.raises(ArgumentError):
            plot.ClusterMapDisplay.from_estimator(model, columns=columns)
