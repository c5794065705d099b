"""Over nodes, every secure sum goes on after a fit: metrics, selections, metrics about other centers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed import DWFKMeans, load, metrics, select_n_clusters
from privfed.core.agreed.agreement import Agreement
from privfed.core.asking.question import wire_name
from privfed.core.record.records import Summed
from privfed.core.stored.encoding import encode
from privfed.errors import ArgumentError, ProtocolError
from privfed.metrics.named import ASKS, OF_LABELS
from privfed.nodes.commands import federations
from privfed.nodes.deploy.local import nodes_of
from privfed.nodes.flower import FlowerEngine
from privfed.nodes.flower.network import Heard
from privfed.nodes.flower.node_messages import Ask, Join, read_down
from privfed.nodes.identity import read_identity
from privfed.nodes.journal import Journal
from privfed.protocols.crypto.keys import Identity
from privfed.questions.fuzzy_spread import FuzzySpread
from tests.cli.wide import run
from tests.nodes.flower.federations import WORDS, federation, here, labels, rows
from tests.nodes.flower.networks import Folders
from tests.nodes.flower.test_signed import signed

SUMS = ("plain", "masked", "masked-verified", "group-masked", "ckks")
FOLLOWED = ("masked-verified", "group-masked", "ckks")
"""Sums whose clients run the agreed program themselves."""

NAMED: dict[str, dict[str, Any]] = {
    **{name: {} for name in ASKS},
    **{name: {"n_labels": 2} for name in OF_LABELS},
    "davies_bouldin": {"q": 2.0},
}
SHORT: dict[str, Any] = {**WORDS, "max_iter": 1}


def over(folder: Path, **words: Any) -> FlowerEngine:
    federation(folder, **words)
    return FlowerEngine(folder, network=Folders(nodes_of(folder)))


def value(model: Any, name: str) -> list[float]:
    found = getattr(metrics, name)(model.federation_, model.cluster_centers_, **NAMED[name])
    if name == "profiles":
        return np.concatenate([found.sizes, found.mean, found.std, *found.means, *found.stds]).tolist()
    if name == "clients_per_cluster":
        return found.tolist()
    return [float(found.accuracy if name == "labels_agreement" else found)]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "protocol",
    [*FOLLOWED, *(pytest.param(one, marks=pytest.mark.slow) for one in SUMS if one not in FOLLOWED)],
)
def test_every_metric_follows_a_fit_as_in_one_process(protocol: str, tmp_path: Path) -> None:
    engine = over(tmp_path / "fed", labelled=True)
    words: dict[str, Any] = {**SHORT, "protocol": protocol, "metrics": NAMED}
    fitted, own = DWFKMeans(3, engine=engine, **words).fit(), here(DWFKMeans(3, **words), y=labels())
    # Not in the order in which they were agreed on.
    for name in sorted(NAMED, reverse=True):
        assert value(fitted, name) == value(own, name)
    assert fitted.federation_.others == [] and engine.faults == []
    engine.end_fits()
    for folder in nodes_of(tmp_path / "fed"):
        assert [fit.closed for fit in Journal(folder, read_identity(folder)).fits] == [True]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("protocol", "numbers"),
    [
        ("masked-verified", [2, 3]),
        ("ckks", [2, 3]),
        *(pytest.param(one, numbers, marks=pytest.mark.slow) for one in SUMS for numbers in (None, [2, 3])),
    ],
)
def test_the_number_of_clusters_is_chosen_as_in_one_process(
    protocol: str, numbers: list[int] | None, tmp_path: Path
) -> None:
    """Without numbers the clients are asked first how many clusters each of them finds."""
    words: dict[str, Any] = {**SHORT, "protocol": protocol, "index": "simplified_silhouette"}
    over_nodes = select_n_clusters(None, numbers, engine=over(tmp_path / "fed"), **words)
    names = [f"c{i}" for i in range(len(rows()))]
    own = select_n_clusters(rows(), numbers, client_names=names, **words)
    assert [row.index for row in over_nodes.table] == [row.index for row in own.table]
    assert over_nodes.local == own.local and over_nodes.n_clusters == own.n_clusters


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("protocol", FOLLOWED)
def test_a_silhouette_is_asked_again_without_centers_that_have_no_rows(protocol: str, tmp_path: Path) -> None:
    start = np.array([[-4.0, -4.0], [4.0, 4.0], [400.0, 400.0]])
    words: dict[str, Any] = {**SHORT, "protocol": protocol, "init": start, "relocate_empty": False}
    fitted = DWFKMeans(3, engine=over(tmp_path / "fed"), **words).fit()
    own = here(DWFKMeans(3, **words))
    before = len(fitted.transcript_.totals())
    assert value(fitted, "simplified_silhouette") == value(own, "simplified_silhouette")
    assert len(fitted.transcript_.totals()) == before + 2


@pytest.mark.few(1)
@pytest.mark.parametrize("protocol", FOLLOWED)
def test_metrics_asked_again_or_about_other_centers_are_agreed_on_anew(protocol: str, tmp_path: Path) -> None:
    engine = over(tmp_path / "fed")
    fitted = DWFKMeans(3, protocol=protocol, engine=engine, **SHORT).fit()
    other = fitted.cluster_centers_ + 0.5
    expected = [
        sum(np.square(own[:, None] - centers).sum(axis=2).min(axis=1).sum() for own in rows())
        for centers in (fitted.cluster_centers_, fitted.cluster_centers_, other, other)
    ]
    found = [
        metrics.inertia(fitted.federation_, fitted.cluster_centers_),
        metrics.inertia(fitted.federation_, fitted.cluster_centers_),
        metrics.inertia(fitted.federation_, other),
        metrics.inertia(None, other, engine=engine, protocol=protocol),
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert len(fitted.federation_.others) == 2
    named = DWFKMeans(3, protocol=protocol, engine=engine, metrics=["inertia"], **SHORT).fit()
    with pytest.raises(ArgumentError, match="only the fit's own centers"):
        metrics.inertia(named.federation_, other)


class Lies(Folders):
    """Nodes whose coordinator says other things of what follows the fit.

    Attributes:
        lie: changes which metrics are said to be asked, for each node; None for the truth.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(nodes_of(folder))
        self.lie: Mapping[int, tuple[int, ...]] = {}
        self._coordinator: Identity = read_identity(folder / "coordinator").key
        self._agreement: Agreement | None = None

    def send(self, messages: Mapping[int, bytes], seconds: float) -> Heard:
        told = {node: self._told(node, data) for node, data in messages.items()}
        return super().send(told, seconds)

    def _told(self, node: int, data: bytes) -> bytes:
        message = read_down(data)
        if isinstance(message, Join):
            self._agreement = Agreement.from_bytes(message.agreement)
        if not isinstance(message, Ask) or node not in self.lie or self._agreement is None:
            return data
        request = msgspec.structs.replace(signed(message.request), metrics=self.lie[node])
        signature = self._coordinator.sign(request.signed(self._agreement, node - 100))
        lied = encode(msgspec.structs.replace(request, signature=signature))
        return encode(Ask(message.digest, lied))


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param({100: (1,)}, id="one client another metric"),
        pytest.param(dict.fromkeys(range(100, 104), ()), id="no metric"),
        pytest.param(dict.fromkeys(range(100, 104), (0, 0)), id="one twice"),
        pytest.param(dict.fromkeys(range(100, 104), (7,)), id="one that is not agreed"),
    ],
)
@pytest.mark.few(2)
@pytest.mark.parametrize("protocol", FOLLOWED)
def test_a_coordinator_that_lies_about_what_follows_opens_no_mixture(
    lie: Mapping[int, tuple[int, ...]], protocol: str, tmp_path: Path
) -> None:
    network = Lies(federation(tmp_path / "fed"))
    engine = FlowerEngine(tmp_path / "fed", network=network)
    # Two metrics whose totals have the same layout and grid, so that answers to both would add up.
    named = {"fuzzy_davies_bouldin": {"m": 2.0}, wire_name(FuzzySpread): {"m": 3.0, "q": 1.0}}
    words: dict[str, Any] = {**SHORT, "protocol": protocol, "metrics": named}
    fitted = DWFKMeans(3, engine=engine, **words).fit()
    before = len(fitted.transcript_.totals())
    network.lie = lie
    try:
        value(fitted, "fuzzy_davies_bouldin")
    except ProtocolError as error:
        # No client has opened a mixture, to tell of it.
        assert "told" not in str(error) and len(fitted.transcript_.totals()) == before
    else:
        # The clients that heard the truth go on without the one that did not, as after a loss.
        assert (protocol, len(lie)) == ("masked-verified", 1)
        assert fitted.transcript_.of(Summed)[-1].contributors == (1, 2, 3)


class Gone(Folders):
    """Nodes that are all gone once their coordinator asks for a metric."""

    def send(self, messages: Mapping[int, bytes], seconds: float) -> Heard:
        read = [one for one in map(read_down, messages.values()) if isinstance(one, Ask)]
        if read and signed(read[0].request).metrics:
            return Heard(faults=dict.fromkeys(messages, 8))
        return super().send(messages, seconds)


@pytest.mark.parametrize("command", [False, True], ids=["Python", "command"])
def test_a_model_is_kept_before_anything_else_is_asked(
    command: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = federation(tmp_path / "fed"), tmp_path / "run"
    engine = FlowerEngine(folder, network=Gone(nodes_of(folder)))
    words: dict[str, Any] = {**SHORT, "protocol": "masked-verified"}
    if command:
        monkeypatch.setattr(federations, "FlowerEngine", lambda folder, **words: engine)
        asked = ("-k", 3, "--max-iter", 1, "--tol", 0, "--metrics", "inertia", "--out", out)
        said = run("flower", "run", folder, "--protocol", "masked-verified", *asked, exit_code=2).output
        assert "0 clients are left" in said
        # The fit is over, and its keys are erased.
        for one in nodes_of(folder):
            assert [fit.closed for fit in Journal(one, read_identity(one)).fits] == [True]
    else:
        fitted = DWFKMeans(3, engine=engine, run_dir=out, metrics=["inertia"], **words).fit()
        with pytest.raises(ProtocolError):
            value(fitted, "inertia")
    kept = load(out / "model.npz")
    assert kept.cluster_centers_.shape == (3, 2) and kept.n_iter_ == 1
