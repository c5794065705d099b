"""Studies fit, attack and report estimators of models like any other."""

from pathlib import Path

import pytest

from privfed.experiments.cells import secure_sum
from privfed.experiments.measuring import measure
from privfed.experiments.planning import Plan, plan
from privfed.experiments.reading import StudyError, parse_study
from privfed.experiments.report.advice import Evidence, answers
from privfed.experiments.report.advice import measured as said_of
from privfed.experiments.report.claims import composed_budgets, saw
from privfed.experiments.report.page import write_report
from privfed.experiments.report.summary import Adversary
from privfed.experiments.running import Store
from privfed.privacy.claim import PrivacySpent
from privfed.protocols.slotted import Slotted
from tests.some import some

STUDY = """\
name = "Models"
seeds = 1
metrics = ["accuracy", "simplified_silhouette"]

[[data]]
source = "iris"
low = 0.0
high = 8.0
public = 0.3

[[partition]]
clients = 5

[[algorithm]]
estimator = "FedAvg"
rounds = 2
learning_rate = 0.05

[[algorithm]]
name = "DCFL"
estimator = "dcfl"
merge = "gathered"
rounds = 6
learning_rate = 0.05
sample_rate = 0.5
noise_multiplier = 4.0
rows_per_client = 20

[[algorithm]]
name = "DWF"
estimator = "DWFKMeans"
n_clusters = 3
max_iter = 2

[[sum]]
protocol = "plain"

[[privacy]]
epsilon = inf

[[privacy]]
epsilon = [4.0, 8.0]
delta = 1e-5
noise = "local"
algorithms = ["DCFL"]

[[attack]]
kind = "model-membership"

[[attack]]
kind = "SketchLinkage"
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Plan, Store]:
    folder = tmp_path_factory.mktemp("study")
    checked, store = plan(parse_study(STUDY, "study.toml"), folder), Store(folder)
    for setup in checked.setups:
        store.keep(setup.cell(0), setup.stored(0), measure(setup, 0, setup.parts(), folder), 1)
    return folder, checked, store


def test_cells_of_models_are_fitted_attacked_and_reported(run: tuple[Path, Plan, Store]) -> None:
    folder, checked, store = run
    rows = write_report(folder, checked, store)
    assert [row.errors for row in rows] == [[]] * 5
    fedavg, clear, *noised, dwf = rows
    for row in (fedavg, clear, *noised):
        assert 0.2 < row.stats["accuracy"].mean <= 1.0 and "score_ratio" not in row.stats
        assert row.ran.startswith(("Averaging(training=", "RegroupedLearning(training="))
        assert "model-membership" in row.attacks
    assert "sketch-linkage" in clear.attacks and "score_ratio" in dwf.stats
    assert set(dwf.not_applicable) == {"model-membership", "sketch-linkage"}
    assert set(fedavg.not_applicable) == {"sketch-linkage"}
    page = (folder / "report.html").read_text()
    assert "Poisson-sampled" in page and "accuracy" in page


def test_updates_that_no_attack_read_are_never_said_to_give_nothing_away(
    run: tuple[Path, Plan, Store],
) -> None:
    """No attack here inverts updates: what they tell of rows is unknown, in clear and under noise alike."""
    folder, checked, store = run
    rows = [row for row in write_report(folder, checked, store) if "score_ratio" not in row.stats]
    for row in some(rows):
        found = said_of(row, Adversary.SERVER)
        assert found is not None and row.unread and found.unread
        assert found.evidence in (Evidence.IN_PART, Evidence.FOUND)
        assert "nothing is known of the rest" in Evidence.IN_PART


def test_what_a_cell_claims_is_what_dp_sgd_claims(run: tuple[Path, Plan, Store]) -> None:
    folder, checked, store = run
    claims = [row.claim for row in write_report(folder, checked, store)]
    assert [one is not None for one in claims] == [False, False, True, True, False]
    assert isinstance(claims[2], PrivacySpent) and claims[2].seeded and claims[2].epsilon == 4.0
    assert "not private: a seeded run of epsilon 4" in claims[2].line


HIDDEN = """\
name = "Slots"
seeds = 1
metrics = ["accuracy"]

[[data]]
source = "iris"
low = 0.0
high = 8.0
public = 0.3

[[partition]]
clients = 6

[[algorithm]]
estimator = "DCFL"
rounds = 6
learning_rate = 0.05

[[sum]]
protocol = "masked"
colluders = 1

[[privacy]]
epsilon = inf

[[attack]]
kind = "sketch-linkage"
"""


def test_merge_asks_for_slots_which_masked_sums_then_have(tmp_path: Path) -> None:
    checked, store = plan(parse_study(HIDDEN, "study.toml"), tmp_path), Store(tmp_path)
    (setup,) = checked.setups
    store.keep(setup.cell(0), setup.stored(0), measure(setup, 0, setup.parts(), tmp_path), 1)
    (row,) = write_report(tmp_path, checked, store)
    assert row.errors == [] and "sketch-linkage" in row.attacks
    seen = saw(row)
    assert "under no name" in seen["the server"] and "whose every contribution" in seen["assumed"]
    assert "models" in seen["a client"] and seen["an observer"] == "the final models"
    assert answers(checked, [row]) == []  # A model has no cost ratio to advise by.


@pytest.mark.parametrize("name", ["FKM", "KFED"])
def test_local_centers_get_slots_for_the_sums_that_gather(name: str, tmp_path: Path) -> None:
    words = HIDDEN.replace(
        '"DCFL"\nrounds = 6\nlearning_rate = 0.05', f'"{name}"\nn_clusters = 3\nmerge = "slotted"'
    )
    attack = words.index("[[attack]]")
    checked = plan(parse_study(words[:attack].replace("accuracy", "score_ratio"), "study.toml"), tmp_path)
    sums = secure_sum(checked.setups[0])
    assert isinstance(sums, Slotted) and sums.sums >= 1


def test_fits_by_dp_sgd_compose_by_adding_up(run: tuple[Path, Plan, Store]) -> None:
    _, checked, store = run
    (together,) = composed_budgets(checked.setups, store.asked())
    assert (together.epsilon, together.delta, together.fits) == (12.0, 2e-5, 2)
    assert together.seeded == 2 and together.open_fits == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("rounds = 2", "rounds = 0"), "rounds"),
        (('source = "iris"', 'source = "mixture"\nrows = 50'), ""),
        (("rows_per_client = 20", "n_clusters = 2"), "n_clusters is no parameter"),
        (('merge = "gathered"', 'merge = "slotted"'), "slots"),
        (("noise_multiplier = 4.0", "noise_multiplier = 0.6"), "pays for"),
        (("public = 0.3", "public = 0.0"), "public"),
        (('noise = "local"', 'noise = "local"\nseeded = false'), "finds the classes of labels in the rows"),
    ],
)
def test_mistakes_are_told_before_anything_runs(
    change: tuple[str, str], message: str, tmp_path: Path
) -> None:
    text = STUDY.replace(*change, 1)
    if not message:
        plan(parse_study(text, "study.toml"), tmp_path)
        return
    with pytest.raises(StudyError, match=message):
        plan(parse_study(text, "study.toml"), tmp_path)
