"""Type checkers and editors see the parameters, names and types that work, and refuse those that do not."""

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import privfed
from privfed import DPKMeans, DWFKMeans, FederatedScaler
from privfed.core.roles.secure_sum import SumName
from privfed.errors import ArgumentError, RunFolderError
from privfed.protocols import SECURE_SUMS

ROOT = Path(privfed.__file__).parents[1]
ESTIMATORS = [kind for name in privfed.__all__ if hasattr(kind := getattr(privfed, name), "get_params")]

RIGHT = """
import numpy as np

import privfed
from privfed import Ball, Box, DWFKMeans, Privacy, PrivacyBudget, RoundProgress, SelectionResult
from privfed import attacks, experiments, extend, metrics, plot, protocols
from privfed.deep import CFL, DCFL, FedAvg, IFCA

tables = [np.random.default_rng(i).normal(size=(40, 2)) for i in range(4)]
truth = np.concatenate(tables)
model = DWFKMeans(
    n_clusters=5, local_iter=5, local_tol=None, learning_rate=1.0, momentum=0.0, tol=1e-6, max_iter=300,
    min_iter=1, patience=None, n_init=1, init="coreset", clients_per_round=None, protocol="masked",
    privacy=None, engine=None, policy=None, domain=None, run_dir=None, random_state=0,
).fit(tables)
reveal_type(model)
reveal_type(model.fit(truth, groups=np.repeat(range(4), 40)))
reveal_type(privfed.load("model.npz", DWFKMeans))
print(model.cluster_centers_.shape, model.history_[0].shape, model.n_iter_, model.inertia_, model.labels_)
print(model.privacy_spent_, model.scaling_, model.federation_.traffic, model.predict(truth).dtype)
model.save("model.npz")
privfed.load("model.npz").predict(truth)

domain = Box(-1, 1)
claim = Privacy(epsilon=1.0, delta=1e-6, unit="record", domain=domain, neighbours="add-remove")
reveal_type(privfed.DPKMeans(3, privacy=claim, protocol=protocols.Masked()).fit(tables))
reveal_type(privfed.WFKMeans(3, weights="equal", relocate_empty=True).fit(tables))
reveal_type(privfed.EWFKMeans(3, policy=privfed.ClientPolicy(group_size=5)).fit(tables))
reveal_type(privfed.KFED(3, n_local_clusters=2, merge="summed").fit(tables))
reveal_type(privfed.FKM(3, min_cluster_size=2, merge="gathered").fit(tables))
reveal_type(privfed.FederatedMiniBatchKMeans(3, epochs=1, batch_size=8, reassign_after=2).fit(tables))
reveal_type(privfed.FederatedFuzzyCMeans(3, m=2.0, averaging="kmeans", protocol="ckks").fit(tables))
reveal_type(privfed.FederatedGaussianMixture(3).fit(tables))
reveal_type(privfed.MergedClusters(model).fit(tables))
reveal_type(privfed.FederatedScaler(protocol="plain").fit(tables))
reveal_type(privfed.FederatedSummary().fit(tables))
reveal_type(privfed.FederatedPCA(1).fit(tables))
reveal_type(privfed.FederatedImputer().fit(tables))
privfed.FederatedScaler().fit_transform(tables)
privfed.MergedClusters().fit_predict(tables)
privfed.select_n_clusters(tables, range(2, 4), estimator=DWFKMeans(protocol="group-masked")).estimator
metrics.fuzzy_davies_bouldin(tables, model.cluster_centers_, m=2.0, p=2, q=1, protocol="plain", privacy=None)

view = attacks.pooled([model.transcript_.view("server")])
prior = attacks.Prior(sample=truth)
rng = np.random.default_rng(0)
report = attacks.evaluate(attacks.Differencing(client=0).run(view, prior, rng), attacks.Truth(tables))
print(report.recovered, report.precision, report.linked, report.baseline, report.bound, report.to_dict())
for attack in (
    attacks.EqualWeightCounts, attacks.Tomography, attacks.Probing, attacks.FuzzyInversion,
    attacks.Disaggregation, attacks.Membership, attacks.Linkage,
):
    print(attack.__name__)
attacks.audit(lambda data, seed: truth[:, 0], truth, truth, epsilon=1.0, delta=1e-6, trials=10)

budget = PrivacyBudget(1.0, 1e-6, "record", "add-remove", "budget.db", domain=domain)
model.fit(tables, watch=RoundProgress("fit", model.max_iter))
found: SelectionResult = privfed.select_n_clusters(tables, range(2, 4), protocol="plain")
for trained in (FedAvg(rounds=2), IFCA(n_clusters=2), CFL(), DCFL()):
    print(trained.fit(tables, tables).models_.shape)
print(budget.take(0.3), extend.Question, privfed.Simulation, privfed.weighting, Ball(1.0))
print(experiments.read("out").columns, plot.EpsilonDisplay.from_study("out").plot().get_xlim(), plot.STYLE)
plot.save(plot.figure_of(plot.ClusterMapDisplay.of(model), plot.BudgetDisplay.of(budget)), "figure.pdf")
plot.ValidityDisplay.from_selection(found, ax=plot.ConvergenceDisplay.from_estimator(model).ax_)
"""

WRONG = """
from privfed import DWFKMeans, FederatedScaler, load

DWFKMeans(protocol="mask")
FederatedScaler(protocol="mask")
DWFKMeans(labels_=3)
DWFKMeans(scaling_=None)
DWFKMeans(n_cluster=3)
DWFKMeans(scale="standart")
load("model.npz", DWFKMeans).fitted
DWFKMeans().fit([]).centers_
"""


@pytest.mark.parametrize("kind", ESTIMATORS, ids=lambda kind: kind.__name__)
def test_the_signature_is_that_of_the_parameters(kind: type[Any]) -> None:
    assert set(inspect.signature(kind).parameters) == set(kind().get_params(deep=False))


def test_names_of_secure_sums_are_the_registered_ones() -> None:
    assert get_args(SumName) == tuple(one for one in SECURE_SUMS if one not in SECURE_SUMS.added())


def test_a_model_is_loaded_as_the_class_that_was_asked_for(tmp_path: Path) -> None:
    class Mine(DWFKMeans):
        """Of a user."""

    rows = np.random.default_rng(0).normal(size=(40, 2))
    file = tmp_path / "model.npz"
    DWFKMeans(2, max_iter=2, tol=0, protocol="plain").fit([rows]).save(file)
    assert type(privfed.load(file, DWFKMeans)) is DWFKMeans
    for other in (DPKMeans, FederatedScaler, Mine):
        with pytest.raises(RunFolderError, match=other.__name__):
            privfed.load(file, other)
    with pytest.raises(ArgumentError):
        privfed.load(file, "DWFKMeans")  # type: ignore[arg-type]
    Mine(2, max_iter=2, tol=0, protocol="plain").fit([rows]).save(file)
    assert type(privfed.load(file, Mine)) is type(privfed.load(file, Mine, estimators=[Mine])) is Mine


def _checked(folder: Path, text: str) -> list[str]:
    """Return what `mypy --strict` says of a user's script, one line for each of its lines that it names."""
    pytest.importorskip("mypy")
    (folder / "script.py").write_text(text)
    options = ("--strict", "--follow-imports=silent", "--cache-dir", "cache", "--show-absolute-path")
    told = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "script.py"],
        cwd=folder,
        env={"MYPYPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not told.stderr
    return [line for line in told.stdout.splitlines() if "script.py:" in line]


@pytest.mark.slow
def test_a_users_script_passes_a_strict_check_and_a_wrong_one_does_not(tmp_path: Path) -> None:
    """Each estimator's `fit` returns its own class, and each wrong line is an error of its own."""
    found = _checked(tmp_path, RIGHT)
    assert not [line for line in found if "Revealed type is" not in line]
    asked = [line for line in RIGHT.splitlines() if line.startswith("reveal_type(")]
    names = [text.partition("privfed.")[2].partition("(")[0] for text in asked]
    wanted = ["DWFKMeans" if name in ("", "load") else name for name in names]
    assert [line.rpartition(".")[2].rstrip('"') for line in found] == wanted
    assert {one.__name__ for one in ESTIMATORS} == set(wanted)
    lines = [
        number for number, line in enumerate(WRONG.splitlines(), start=1) if line and "import" not in line
    ]
    errors = _checked(tmp_path, WRONG)
    refused = [line for line in errors if ": error: " in line]
    assert [int(line.rpartition("script.py:")[2].partition(":")[0]) for line in refused] == lines
