"""`privfed audit`: of releases, of canaries and of a run."""

import json

import numpy as np
import pytest

from privfed import Box, DPKMeans, Privacy
from tests.attacks.populations import mixture


def test_audit_of_releases(invoke, tmp_path):
    rng, path = np.random.default_rng(0), tmp_path / "releases.npz"
    claim = ("--epsilon", 1, "--delta", 1e-5)
    np.savez(path, inside=rng.normal(0.268, 1.0, 20_000), outside=rng.normal(size=20_000))
    assert "verdict: not refuted" in invoke("audit", path, *claim).stdout
    np.savez(path, inside=rng.normal(0.5, 1.0, 20_000), outside=rng.normal(size=20_000))
    out = tmp_path / "audit.json"
    assert "verdict: violated" in invoke("audit", path, *claim, "--out", out, exit_code=1).stdout
    assert json.loads(out.read_text())["epsilon_gdp"] > 1.0


def test_audit_of_canaries(invoke, tmp_path):
    rng, path = np.random.default_rng(0), tmp_path / "canaries.npz"
    included = rng.random(1000) < 0.5
    np.savez(path, scores=included + rng.normal(size=1000), included=included)
    assert "1000 trials" in invoke("audit", path, "--epsilon", 8, "--delta", 1e-5).stdout


def test_audit_of_a_run(invoke, tmp_path):
    clients = mixture(0, n_clients=5, n_rows=40).clients
    privacy = Privacy(
        epsilon=1.0, delta=1e-6, unit="record", neighbours="add-remove", domain=Box(-25, 25, max_rows=99)
    )
    data = tmp_path / "clients"
    data.mkdir()
    for name, rows in zip("abcde", clients, strict=True):
        np.savetxt(data / f"{name}.csv", rows, delimiter=",", header="x,y", comments="", fmt="%.17g")
    groups = np.repeat(list("abcde"), 40)
    DPKMeans(3, privacy=privacy, run_dir=tmp_path / "run").fit(
        np.concatenate(clients), groups=groups, client_names=list("abcde")
    )
    # The noise is the operating system's: at the default one honest run in a thousand is called violated.
    words = ("audit", tmp_path / "run", "--truth", data, "--confidence", 1 - 1e-9)
    shown = invoke(*words, "--json").stdout
    found = json.loads(shown)
    assert found["verdict"] == found["unit"]["verdict"] == "not refuted"
    assert 0.2 < found["unit"]["epsilon_gdp"] <= 1.0
    assert "epsilon >= " in invoke(*words).stdout


@pytest.mark.parametrize(
    ("arrays", "words", "message"),
    [
        ({"inside": [0.0] * 200}, ("--epsilon", 1, "--delta", 0.1), 'needs arrays "inside" and "outside"'),
        ({"inside": [0.0]}, (), "give --epsilon and --delta"),
        ({"inside": [0.0]}, ("--epsilon", -1, "--delta", 0.1), "got --epsilon -1.0"),
        ({"inside": [0.0]}, ("--out", "found.csv"), "its name must end with .json"),
    ],
)
def test_bad_releases_are_one_line(failing, tmp_path, arrays, words, message):
    path = tmp_path / "releases.npz"
    np.savez(path, **arrays)
    assert message in failing("audit", path, *words)


def test_a_file_that_is_no_npz_is_one_line(failing, iris):
    assert "is no .npz file of numbers" in failing("audit", iris, "--epsilon", 1, "--delta", 0.1)


def test_a_run_of_users_is_audited_on_the_rows_that_counted(invoke, tmp_path):
    """On all rows of users the totals were far off, which was taken for enough noise."""
    rng, data = np.random.default_rng(0), tmp_path / "users.csv"
    rows = rng.normal(size=(120, 2)).clip(-3, 3)
    lines = [f"h{i % 5},p{i // 10},{x},{y}" for i, (x, y) in enumerate(rows.tolist())]
    data.write_text("\n".join(["hospital,patient,x,y", *lines]) + "\n")
    claim = ("--epsilon", 10, "--delta", 1e-5, "--unit", "user", "--rows-per-user", 1, "--id", "patient")
    clients = ("--group", "hospital", "--clients", "h0,h1,h2,h3,h4", "--neighbours", "add-remove")
    domain = ("--low", -3, "--high", 3, "--max-rows", 40)
    out = tmp_path / "run"
    invoke("fit", data, "--algorithm", "dp", "-k", 2, *claim, *clients, *domain, "--out", out, "--quiet")
    found = json.loads(invoke("audit", out, "--confidence", 1 - 1e-9, "--json").stdout)
    # Of n values the mean square varies by sqrt(2 / n).
    assert abs(found["ratio"] - 1.0) < 6.0 * (2.0 / found["values"]) ** 0.5
    turned = " ".join(invoke("audit", out, "--columns", "y,x", exit_code=2).stderr.split())
    assert "is of x, y, in this order; name these with --columns" in turned
    (out / "clients" / "users").unlink()
    assert "nothing was audited" in invoke("audit", out, exit_code=2).stderr
