"""A view goes to a file and comes back as it was; files of other programs are read, damaged ones refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed import Box, DPKMeans, DWFKMeans, FederatedGaussianMixture, Privacy, metrics
from privfed.attacks import Differencing, Prior, Truth, evaluate, view_from_file, view_to_file
from privfed.core.record.records import View
from privfed.errors import DataError
from privfed.estimators.local_centers import KFED
from tests.examples.scripts import loaded

CLIENTS = list(np.random.default_rng(5).normal(size=(4, 30, 3)))
DOMAIN = Box(-6.0, 6.0)
CLAIMED = Privacy(epsilon=2, delta=1e-6, unit="record", neighbours="add-remove", domain=DOMAIN)
FITS: dict[str, Any] = {
    "plain": lambda: DWFKMeans(3, protocol="plain", random_state=0),
    "masked": lambda: DWFKMeans(3, protocol="masked", random_state=0),
    "ckks": lambda: DWFKMeans(3, protocol="ckks", random_state=0),
    "noised": lambda: DPKMeans(3, privacy=CLAIMED, protocol="masked"),
    "gathered": lambda: KFED(3, merge="gathered", protocol="plain", random_state=0),
    "mixture": lambda: FederatedGaussianMixture(2, protocol="masked", random_state=0),
}

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def check_equal(one: View, other: View) -> None:
    assert (one.party, one.colluding, one.clients) == (other.party, other.colluding, other.clients)
    assert one.result.keys() == other.result.keys()
    assert all(np.array_equal(one.result[name], other.result[name]) for name in one.result)
    assert len(one.sums) == len(other.sums)
    for left, right in zip(one.sums, other.sums, strict=True):
        for name in ("index", "purpose", "cohort", "contributors", "total", "answers", "upload_bytes"):
            assert getattr(left, name) == getattr(right, name), name
        assert (left.question is None) is (right.question is None)
        if left.question is not None and right.question is not None:
            assert left.question.to_bytes() == right.question.to_bytes()
            assert left.question.position == right.question.position


@pytest.mark.parametrize("name", sorted(FITS))
def test_what_each_party_saw_comes_back(name: str, tmp_path: Path) -> None:
    if name == "ckks":
        pytest.importorskip("tenseal")
    model = FITS[name]().fit(CLIENTS)
    metrics.davies_bouldin(model.federation_, model.cluster_centers_) if name == "masked" else None
    for party, colluding in (("server", ()), ("server", (1,)), ("clients", (0, 2)), ("observer", ())):
        seen = model.transcript_.view(party, colluding=colluding)
        view_to_file(seen, tmp_path / "view.npz")
        check_equal(view_from_file(tmp_path / "view.npz"), seen)


def test_an_attack_finds_the_same_in_the_file(tmp_path: Path) -> None:
    seen = DWFKMeans(8, protocol="plain", random_state=0).fit(CLIENTS).transcript_.view("server")
    view_to_file(seen, tmp_path / "view.npz")
    both = [
        evaluate(Differencing(0).run(one, Prior(), np.random.default_rng(0)), Truth(CLIENTS))
        for one in (seen, view_from_file(tmp_path / "view.npz"))
    ]
    assert both[0].recovered == both[1].recovered > 0


def written(path: Path, change: Any = None, **arrays: Any) -> Path:
    """Write a file as another program would, with NumPy alone."""
    rows = [np.array([[0.0, 0.0], [1.0, 0.5]]), np.array([[4.0, 4.0], [5.0, 4.0], [4.5, 5.0]])]
    counts = np.array([[2.0, 0.0], [0.0, 3.0]])
    sums = np.stack(
        [np.stack([rows[0].sum(axis=0), np.zeros(2)]), np.stack([np.zeros(2), rows[1].sum(axis=0)])]
    )
    # The options are in another order than the question's fields.
    options = {"ranges.rows": 100, "ranges": "Ranges"}
    view = {
        "clients": ["a", "b"],
        "sums": [
            {"index": 0, "purpose": "round", "cohort": [0, 1], "contributors": [0, 1], "answers": [0, 1],
             "question": {"name": "LloydSums", "options": options}}
        ],
    }  # fmt: skip
    found = {
        "0/question/centers": np.array([[0.5, 0.2], [4.5, 4.3]]),
        "0/question/ranges.high": np.full(2, 9.0),
        "0/question/ranges.low": np.full(2, -9.0),
        "0/answers/sum": sums,
        "0/answers/count": counts,
        "0/total/sum": sums.sum(axis=0),
        "0/total/count": counts.sum(axis=0),
    }
    if change is not None:
        change(view)
    np.savez(path, view=json.dumps(view), **{**found, **arrays})
    return path


def test_a_file_of_another_program_is_read(tmp_path: Path) -> None:
    seen = view_from_file(written(tmp_path / "view.npz"))
    (one,) = seen.sums
    assert seen.party == "server" and one.question is not None and one.total is not None
    assert one.total["count"].tolist() == [2.0, 3.0]
    assert one.answers[1]["sum"].tolist() == [[0.0, 0.0], [13.5, 13.0]]


@pytest.mark.parametrize(
    ("change", "arrays"),
    [
        (lambda view: view["sums"][0].update(cohort=[0, 2]), {}),
        (lambda view: view["sums"][0].update(answers=[0]), {}),
        (lambda view: view["sums"][0].update(answers=[0, -1]), {}),
        (lambda view: view["sums"][0]["question"].update(name="Rows"), {}),
        (lambda view: view["sums"][0]["question"]["options"].update(other=1), {}),
        (lambda view: view["sums"][0].update(question=None), {"0/answers/more": np.zeros((2, 1))}),
        (lambda view: view.update(format=2), {}),
        (lambda view: view.update(party="judge"), {}),
        (lambda view: view.update(colluding=[7]), {}),
        (lambda view: view.pop("clients"), {}),
        (None, {"0/total/sum": np.zeros((2, 3))}),
        (None, {"0/total/sum": np.full((2, 2), np.nan)}),
        (None, {"0/total/more": np.zeros(1)}),
        (None, {"0/answers/sum": np.zeros((1, 2, 2))}),
        (None, {"0/question/centers": np.array([["a"]], dtype=object)}),
        (None, {"0/total/sum": np.zeros((2, 2), dtype=np.int64)}),
    ],
)
def test_a_damaged_file_is_refused(change: Any, arrays: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError):
        view_from_file(written(tmp_path / "view.npz", change, **arrays))


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "view.npz").write_text("index,0")
    with pytest.raises(DataError):
        view_from_file(tmp_path / "view.npz")
    np.savez(tmp_path / "other.npz", x=np.zeros(2))
    with pytest.raises(DataError):
        view_from_file(tmp_path / "other.npz")
    with pytest.raises(FileNotFoundError):
        view_from_file(tmp_path / "none.npz")


def test_privacy_meter_reads_a_view_with_numpy_alone(tmp_path: Path) -> None:
    script = loaded("other_programs/privacy_meter_view")
    model = DWFKMeans(3, protocol="masked", random_state=0).fit(CLIENTS)
    view_to_file(model.transcript_.view("observer"), tmp_path / "view.npz")
    said, centers = script.released(tmp_path / "view.npz")
    assert said["clients"] == list(model.transcript_.view("observer").clients)
    assert np.array_equal(centers, model.cluster_centers_)
    rows = np.concatenate(CLIENTS)
    assert script.signals(centers, rows).sum() == pytest.approx(model.inertia_)
