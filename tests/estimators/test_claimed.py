"""What a fitted model carries: its claim, wherever it goes; under privacy nothing that follows from rows."""

import copy
import io
import json
import pickle
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest

import privfed
from privfed import (
    FKM,
    KFED,
    Ball,
    Box,
    DPKMeans,
    DWFKMeans,
    FederatedFuzzyCMeans,
    FederatedMiniBatchKMeans,
    FederatedScaler,
    Privacy,
    select_n_clusters,
)
from privfed.errors import ArgumentError, RunFolderError
from privfed.estimators.saving import FORMAT

BOX = Box(-1.0, 1.0, max_rows=400)
MODELS: dict[str, Any] = {
    "dp": DPKMeans(3),
    "dwf": DWFKMeans(3, local_iter=1),
    "minibatch": FederatedMiniBatchKMeans(3),
    "fuzzy": FederatedFuzzyCMeans(3, averaging="weighted", local_iter=1),
    "kfed": KFED(3),
}
OF_TOTALS = {
    *(
        "cluster_centers_",
        "history_",
        "states_",
        "n_iter_",
        "inertia_",
        "n_rows_",
        "converged_",
        "transcript_",
    ),
    *(
        "privacy_claim_",
        "n_features_in_",
        "_n_features_out",
        "_score",
        "stopped_by_",
        "scaling_",
        "findings_",
        "finish_iter_",
        "_sklearn_version",
    ),
}
"""Everything fitted that a private model may take along: it follows from noised totals, or from no data."""


def clients_of(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    centers = rng.uniform(-0.6, 0.6, (3, 2))
    return np.array_split(centers[rng.integers(3, size=400)] + rng.uniform(-0.2, 0.2, (400, 2)), 4)


CLIENTS, OTHERS = clients_of(0), clients_of(1)


def privacy(**words: Any) -> Privacy:
    known: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "unit": "record", "neighbours": "add-remove"}
    return Privacy(**(known | {"domain": BOX} | words))


def fresh(name: str, **words: Any) -> Any:
    model = MODELS[name]
    return type(model)(**(model.get_params() | words))


def copies(model: Any, folder: Path) -> dict[str, bytes]:
    """Return everything in which a model can be kept."""
    joblib.dump(model, dumped := io.BytesIO())
    model.save(folder / "model.npz")
    saved = (folder / "model.npz").read_bytes()
    return {"pickle": pickle.dumps(model), "joblib": dumped.getvalue(), "save": saved}


def values_in(content: bytes) -> list[float]:
    """Return the clients' values that stand in some bytes, in either byte order."""
    values = np.concatenate(CLIENTS).ravel()
    return [v for v in values if v.tobytes() in content or v.byteswap().tobytes() in content]


def test_values_of_rows_are_found_where_they_are() -> None:
    assert len(values_in(pickle.dumps([CLIENTS[0], float(CLIENTS[1][0, 0])]))) == CLIENTS[0].size + 1


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.few(2)
def test_what_a_private_model_keeps_follows_from_its_totals_alone(name: str, tmp_path: Path) -> None:
    words = {"privacy": privacy(), "run_dir": tmp_path, "protocol": "plain"}
    first = fresh(name, **words).fit(CLIENTS)
    # Every total is replayed, so that what still differs was taken from the rows themselves.
    second = fresh(name, **words).resume(OTHERS)
    assert any((a != b).any() for a, b in zip(first.labels_, second.labels_, strict=True))
    one, two = first.__getstate__(), second.__getstate__()
    assert set(one) == set(two) <= OF_TOTALS | set(first.get_params())
    assert one.pop("transcript_").records == two.pop("transcript_").records
    assert pickle.dumps([one[word] for word in sorted(one)]) == pickle.dumps(
        [two[word] for word in sorted(two)]
    )
    kept = copies(first, tmp_path)
    assert kept["save"] == copies(second, tmp_path)["save"]
    for form, content in kept.items():
        assert not values_in(content), form


@pytest.mark.parametrize("protocol", ["masked", "group-masked"])
def test_copies_of_a_private_model_have_no_labels(protocol: str) -> None:
    model = DPKMeans(3, privacy=privacy(noise_seed=1), protocol=protocol).fit(CLIENTS)
    joblib.dump(model, file := io.BytesIO())
    file.seek(0)
    for again in (
        pickle.loads(pickle.dumps(model)),
        copy.copy(model),
        copy.deepcopy(model),
        joblib.load(file),
    ):
        assert not hasattr(again, "labels_") and not hasattr(again, "federation_")
        assert str(again.privacy_claim_) == str(model.privacy_claim_)
        assert again.privacy_spent_ is None
        np.testing.assert_array_equal(again.predict(CLIENTS[0]), model.labels_[0])
    # The claim of what was fitted counts, not the word for the next fit.
    assert not hasattr(copy.copy(model.set_params(privacy=None)), "labels_")
    assert hasattr(copy.copy(DWFKMeans(3, max_iter=1, protocol=protocol).fit(CLIENTS)), "labels_")


def test_a_private_scaler_keeps_what_follows_from_totals() -> None:
    scaler = FederatedScaler(privacy=privacy(), protocol="plain").fit(CLIENTS)
    content = pickle.dumps(scaler)
    assert not values_in(content)
    assert pickle.loads(content).privacy_spent_ == scaler.privacy_spent_
    fitted = {name for name in vars(pickle.loads(content)) if name.endswith("_")}
    assert fitted == {
        *("data_min_", "data_max_", "data_range_", "n_samples_seen_", "mean_", "var_", "scale_"),
        *("mean_error_", "var_error_", "rows_error_"),
        *("transcript_", "privacy_claim_", "n_features_in_"),
    }


def test_a_federation_cannot_be_pickled_or_copied() -> None:
    model = DWFKMeans(3, max_iter=1, protocol="plain").fit(CLIENTS)
    for copied in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(ArgumentError, match="refers to live clients"):
            copied(model.federation_)


# --- saved models ---


@pytest.mark.parametrize("domain", [BOX, Box([-1, -2], [1, 2]), Ball(1.5), Ball(2.0, [0.5, 0.25], 400)])
@pytest.mark.parametrize("seed", [None, 7])
def test_a_loaded_model_claims_what_the_saved_one_did(
    domain: Box | Ball, seed: int | None, tmp_path: Path
) -> None:
    words = privacy(domain=domain, noise_seed=seed, spare=0.1)
    model = DPKMeans(3, privacy=words, protocol="plain").fit(CLIENTS)
    model.save(tmp_path / "model.npz")
    loaded = privfed.load(tmp_path / "model.npz")
    assert loaded.privacy_claim_ == model.privacy_claim_ is not None
    assert loaded.privacy_spent_ == model.privacy_spent_
    assert (loaded.privacy_spent_ is None) == (seed is not None)
    assert loaded.n_rows_ == model.n_rows_
    assert words_in(loaded.privacy) == words_in(words)
    loaded.save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "model.npz").read_bytes()


def words_in(given: Privacy) -> dict[str, Any]:
    """Return the words of a guarantee; those of its domain as lists of the numbers that they stand for."""
    found = {name: getattr(given, name) for name in given.__dataclass_fields__ if name != "domain"}
    domain = given.domain
    numbers = {name: np.asarray(getattr(domain, name)).tolist() for name in domain.__dataclass_fields__}
    return found | {"domain": (type(domain), numbers)}


def test_a_loaded_private_model_is_fitted_again_with_privacy(tmp_path: Path) -> None:
    DWFKMeans(3, local_iter=1, privacy=privacy(), protocol="plain").fit(CLIENTS).save(tmp_path / "model.npz")
    again = privfed.load(tmp_path / "model.npz").fit(CLIENTS)
    assert again.privacy_spent_ is not None and again.inertia_ is None


@pytest.mark.parametrize("kind", [KFED, FKM])
def test_noise_of_each_client_alone_is_claimed_after_loading_too(kind: Any, tmp_path: Path) -> None:
    model = kind(3, max_iter=2, privacy=privacy(), protocol="plain").fit(CLIENTS[:2])
    model.save(tmp_path / "model.npz")
    loaded = privfed.load(tmp_path / "model.npz")
    assert loaded.privacy_spent_ == model.privacy_spent_
    assert loaded.privacy_spent_.noise == "local" and loaded.n_rows_ is None


def rewritten(path: Path, **changes: Any) -> None:
    """Change the facts of a saved model; None takes one out."""
    with np.load(path) as stored:
        parts = {name: stored[name] for name in stored.files}
    facts = json.loads(parts["facts"].tobytes()) | changes
    facts = {name: value for name, value in facts.items() if name not in changes or value is not None}
    parts["facts"] = np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)
    np.savez(path, **parts)


@pytest.mark.parametrize(
    ("found", "said"), [(FORMAT + 1, "a newer privfed"), (FORMAT - 1, "an older privfed")]
)
def test_a_file_of_another_format_is_refused_by_name(found: int, said: str, tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    DWFKMeans(3, max_iter=1, protocol="plain").fit(CLIENTS).save(path)
    rewritten(path, format=found)
    with pytest.raises(RunFolderError, match=rf"model\.npz has format {found}.*{said}"):
        privfed.load(path)


@pytest.mark.parametrize(
    "damage",
    [{"privacy_claim": {"epsilon": 1}}, {"privacy_claim": 5}, {"privacy": {"epsilon": -1}}, {"rows": "many"}],
)
def test_a_damaged_claim_is_an_error(damage: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    DPKMeans(3, privacy=privacy(noise_seed=1), protocol="plain").fit(CLIENTS).save(path)
    rewritten(path, **damage)
    with pytest.raises(RunFolderError, match=r"model\.npz is damaged"):
        privfed.load(path)


def test_a_selection_says_its_claim_and_leaves_labels_behind() -> None:
    found = select_n_clusters(CLIENTS, [2, 3], estimator="dp", privacy=privacy(), protocol="plain")
    claim = found.estimator.privacy_spent_
    assert claim is not None and found.privacy_claim == claim
    assert str(claim) in str(found) and "davies_bouldin (noised)" in str(found)
    assert found.to_dict()["privacy"]["summary"] == claim.line and "rows" in found.to_dict()["noised"]
    assert all(not hasattr(model, "labels_") for model in pickle.loads(pickle.dumps(found)).models)
    open_one = select_n_clusters(CLIENTS, [2, 3], estimator="dwf", max_iter=2, protocol="plain")
    assert open_one.privacy_claim is None and "noised" not in str(open_one)
    assert (open_one.to_dict()["privacy"], open_one.to_dict()["noised"]) == (None, [])
