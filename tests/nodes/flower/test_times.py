"""Rows are there in the rounds that a node's owner says, over Flower as in one process."""

from pathlib import Path

from privfed.deep import FedAvg
from privfed.nodes.deploy.local import nodes_of
from tests.deep.population import clients
from tests.nodes.flower.models import NAMES, WORDS, N, assert_same_models, labelled, over


def test_times_that_owners_declare_are_used(tmp_path: Path) -> None:
    X, y = clients(N)
    for rows in X:
        rows[:, 3] *= 6.0  # Of rounds 1 to 5: some rows end before the last round, some after it.
    folder = labelled(tmp_path / "timed", rows=X)
    for node in nodes_of(folder):
        (node / "node.toml").write_text('times = ["x2", "x3"]\n' + (node / "node.toml").read_text())
    words = {**WORDS, "timed": True, "domain": None}
    own = FedAvg(**words).fit(X, y, client_names=NAMES)
    assert_same_models(FedAvg(**words, engine=over(folder)[0]).fit(), own)
    held = [total.statistics["rows"][0] for _, total in own.transcript_.totals()][1:]
    assert N * 40 > held[0] > held[-1] > 0
