"""A saved model predicts as before; a damaged file is an error and never code."""

import io
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import privfed
from privfed import Box, DWFKMeans, EWFKMeans, WFKMeans
from privfed.errors import ArgumentError, RunFolderError
from privfed.metrics import inertia
from tests.some import some

Clients = list[np.ndarray]
MODELS = [DWFKMeans, EWFKMeans, WFKMeans]


@pytest.mark.parametrize("kind", MODELS)
def test_loaded_model_is_the_saved_one(
    kind: type[DWFKMeans], blobs: Clients, protocol: str, tmp_path: Path
) -> None:
    fitted = kind(3, max_iter=3, tol=0, momentum=0.25, protocol=protocol, cohorts=[[0, 1, 2, 3, 4, 5]]).fit(
        blobs
    )
    fitted.save(tmp_path / "model.npz")
    loaded = privfed.load(tmp_path / "model.npz")
    assert type(loaded) is kind
    assert loaded.get_params() == fitted.get_params()
    for rows in blobs:
        np.testing.assert_array_equal(loaded.predict(rows), fitted.predict(rows))
        np.testing.assert_array_equal(loaded.transform(rows), fitted.transform(rows))
    np.testing.assert_array_equal(np.stack(loaded.history_), np.stack(fitted.history_))
    for name in ("n_iter_", "inertia_", "converged_", "privacy_spent_", "n_features_in_"):
        assert getattr(loaded, name) == getattr(fitted, name), name
    assert loaded.get_feature_names_out().tolist() == fitted.get_feature_names_out().tolist()


@pytest.mark.parametrize(
    "made",
    [
        *(privfed.FederatedScaler(how) for how in ("standard", "range", "robust")),
        privfed.FederatedImputer(),
        privfed.FederatedPCA(1),
    ],
    ids=["standard", "range", "robust", "imputer", "components"],
)
def test_loaded_transformer_transforms_as_the_saved_one(made: Any, blobs: Clients, tmp_path: Path) -> None:
    frames = [pl.DataFrame(np.array(rows), schema=["age", "height"]) for rows in blobs]
    with pytest.raises(privfed.errors.PrivFedError, match="not fitted"):
        made.save(tmp_path / "model.npz")
    made.fit(frames).save(tmp_path / "model.npz")
    loaded = privfed.load(tmp_path / "model.npz")
    assert type(loaded) is type(made) and loaded.get_params() == made.get_params()
    for rows in blobs:
        np.testing.assert_array_equal(loaded.transform(rows), made.transform(rows))
    assert loaded.feature_names_in_.tolist() == ["age", "height"]
    assert loaded.n_samples_seen_ == made.n_samples_seen_ and loaded.privacy_claim_ is None
    loaded.save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "model.npz").read_bytes()
    # What a file names beside the fitted numbers is set nowhere.
    facts = json.loads(np.load(tmp_path / "model.npz")["facts"].tobytes())
    for wrong in ({"transform": 1.0}, {"mean_": [float("nan"), 0.0]}):
        changed = facts | {"numbers": facts["numbers"] | wrong}
        np.savez(tmp_path / "wrong.npz", facts=np.frombuffer(json.dumps(changed).encode(), dtype=np.uint8))
        with pytest.raises(RunFolderError, match="damaged"):
            privfed.load(tmp_path / "wrong.npz")


def test_a_private_scaler_keeps_its_claim(blobs: Clients, tmp_path: Path) -> None:
    claim = privfed.Privacy(
        epsilon=5, delta=1e-6, unit="record", neighbours="add-remove", domain=Box(-20, 20), noise_seed=1
    )
    made = privfed.FederatedScaler(privacy=claim).fit(blobs)
    made.save(tmp_path / "model.npz")
    loaded = privfed.load(tmp_path / "model.npz")
    assert str(loaded.privacy_claim_) == str(made.privacy_claim_)
    assert (loaded.privacy.epsilon, loaded.privacy.unit) == (claim.epsilon, claim.unit)
    np.testing.assert_array_equal(loaded.transform(blobs[0]), made.transform(blobs[0]))


def test_loaded_model_can_be_saved_and_fitted_again(blobs: Clients, tmp_path: Path) -> None:
    DWFKMeans(3, max_iter=3, protocol="plain").fit(blobs).save(str(tmp_path / "one.npz"))
    loaded = privfed.load(str(tmp_path / "one.npz"))
    loaded.save(tmp_path / "two.npz")
    again = privfed.load(tmp_path / "two.npz")
    np.testing.assert_array_equal(again.cluster_centers_, loaded.cluster_centers_)
    np.testing.assert_array_equal(again.fit(blobs).cluster_centers_, loaded.cluster_centers_)


def test_start_given_as_an_array_and_names_of_columns_are_kept(blobs: Clients, tmp_path: Path) -> None:
    start = np.array([[0.1, 1 / 3], [5.0, 5.0]])
    frames = [pl.DataFrame(np.array(rows), schema=["age", "height"]) for rows in blobs]
    DWFKMeans(2, init=start, protocol="plain", max_iter=2, tol=0).fit(frames).save(tmp_path / "model.npz")
    loaded = privfed.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.init, start)
    assert loaded.feature_names_in_.tolist() == ["age", "height"]
    assert loaded.predict(frames[0]).shape == (len(blobs[0]),)


def test_objects_among_the_words_have_their_defaults_again(blobs: Clients, tmp_path: Path) -> None:
    fitted = WFKMeans(
        3, weights=lambda update: update.counts, domain=Box(-9, 19), protocol="plain", max_iter=1
    )
    fitted.fit(blobs).save(tmp_path / "model.npz")
    loaded = privfed.load(tmp_path / "model.npz")
    assert loaded.domain is None and loaded.weights == "dynamic"
    np.testing.assert_array_equal(loaded.cluster_centers_, fitted.cluster_centers_)


# --- classes of users ---


class Mine(DWFKMeans):
    """A user's own class, with a constructor of its own."""

    def __init__(self, n_clusters: int = 3, *, shrink: float = 1.0, **words: Any) -> None:
        super().__init__(n_clusters, **words)
        self.shrink = shrink

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted([*DWFKMeans._get_param_names(), "shrink"])


def homonym(base: type) -> type:
    return type(base.__name__, (base,), {"__module__": "elsewhere"})


def test_a_class_of_the_user_is_loaded_where_it_is_passed(blobs: Clients, tmp_path: Path) -> None:
    fitted = Mine(3, shrink=0.5, max_iter=2, protocol="plain").fit(blobs)
    fitted.save(tmp_path / "model.npz")
    loaded = privfed.load(tmp_path / "model.npz", estimators=[EWFKMeans, Mine])
    assert type(loaded) is Mine and (loaded.shrink, loaded.max_iter) == (0.5, 2)
    np.testing.assert_array_equal(loaded.predict(blobs[0]), fitted.predict(blobs[0]))
    # The file has no code and names none that is run: it is only told which class is missing.
    with pytest.raises(RunFolderError, match=rf"class '{Mine.__module__}:Mine'.*estimators=\[Mine\]"):
        privfed.load(tmp_path / "model.npz")


def test_a_class_that_has_moved_is_found_by_its_name(blobs: Clients, tmp_path: Path) -> None:
    homonym(Mine)(3, max_iter=1, protocol="plain").fit(blobs).save(tmp_path / "model.npz")
    assert type(privfed.load(tmp_path / "model.npz", estimators=[Mine])) is Mine
    with pytest.raises(RunFolderError, match="pass the one that it is"):
        privfed.load(tmp_path / "model.npz", estimators=[Mine, type("Mine", (DWFKMeans,), {})])


def test_a_class_of_the_user_is_never_taken_for_one_of_ours(blobs: Clients, tmp_path: Path) -> None:
    other = homonym(DWFKMeans)
    other(3, max_iter=1, protocol="plain").fit(blobs).save(tmp_path / "other.npz")
    with pytest.raises(RunFolderError, match="'elsewhere:DWFKMeans', which is not registered here"):
        privfed.load(tmp_path / "other.npz")
    assert type(privfed.load(tmp_path / "other.npz", estimators=[other])) is other
    DWFKMeans(3, max_iter=1, protocol="plain").fit(blobs).save(tmp_path / "ours.npz")
    assert type(privfed.load(tmp_path / "ours.npz", estimators=[other])) is DWFKMeans


def test_nothing_is_imported_for_a_file(blobs: Clients, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    trap = type("Trap", (DWFKMeans,), {"__module__": "trap"})
    trap(3, max_iter=1, protocol="plain").fit(blobs).save(tmp_path / "model.npz")
    with pytest.raises(RunFolderError, match="'trap:Trap'"):
        privfed.load(tmp_path / "model.npz")


def test_a_model_whose_file_names_a_module_is_fitted_again_without_importing_it(
    blobs: Clients, tmp_path: Path, monkeypatch: Any
) -> None:
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    fitted = DWFKMeans(3, max_iter=1, protocol="plain").fit(blobs)
    fitted.set_params(protocol="trap:Sum").save(tmp_path / "model.npz")
    model = privfed.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(model.predict(blobs[0]), fitted.predict(blobs[0]))
    said = r"protocol must be one of plain, .* got 'trap:Sum'"
    with pytest.raises(ArgumentError, match=said):
        model.fit(blobs)
    with pytest.raises(ArgumentError, match=said):
        inertia(blobs, model.cluster_centers_, protocol="trap:Sum")
    assert "trap" not in sys.modules


def test_words_that_no_file_holds_are_named(blobs: Clients, tmp_path: Path) -> None:
    class Needy(DWFKMeans):
        def __init__(self, tool: object, n_clusters: int = 3) -> None:
            super().__init__(n_clusters, max_iter=1, protocol="plain")
            self.tool = tool

        def get_params(self, deep: bool = True) -> dict[str, Any]:
            return {**DWFKMeans.get_params(DWFKMeans(), deep), **vars(self)}

    Needy(object()).fit(blobs).save(tmp_path / "model.npz")
    with pytest.raises(RunFolderError, match=r"a Needy without tool: .*; give them a default"):
        privfed.load(tmp_path / "model.npz", estimators=[Needy])


@pytest.mark.parametrize("passed", [Mine(), "tests:Mine", dict])
def test_only_classes_of_estimators_are_passed(passed: Any, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="estimators must be classes"):
        privfed.load(tmp_path / "model.npz", estimators=[passed])


# --- files that are no models ---


@pytest.fixture(scope="module")
def saved(blobs: Clients, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("saved") / "model.npz"
    DWFKMeans(3, max_iter=1, protocol="plain").fit(blobs).save(path)
    return path.read_bytes()


def rewritten(saved: bytes, change: Any = None, **arrays: Any) -> bytes:
    """Return a saved model with changed facts or other arrays."""
    with np.load(io.BytesIO(saved)) as stored:
        parts = {name: stored[name] for name in stored.files}
    if change is not None:
        known = json.loads(parts["facts"].tobytes())
        parts["facts"] = np.frombuffer(json.dumps(change(known)).encode(), dtype=np.uint8)
    parts.update(arrays)
    file = io.BytesIO()
    np.savez(file, **{name: value for name, value in parts.items() if value is not None})
    return file.getvalue()


def other_zip(saved: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("letter.txt", "hello")
    return file.getvalue()


def pickled(saved: bytes) -> bytes:
    file = io.BytesIO()
    np.savez(file, centers=np.array([object], dtype=object), history=np.zeros((1, 1, 1)), facts=np.zeros(1))
    return file.getvalue()


def vast(saved: bytes) -> bytes:
    """Return a file whose header promises more numbers than any machine holds."""
    header, file = io.BytesIO(), io.BytesIO()
    about = {"descr": "<f8", "fortran_order": False, "shape": (10**15,)}
    np.lib.format.write_array_header_1_0(header, about)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("facts.npy", header.getvalue())
    return file.getvalue()


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda saved: b"", id="empty"),
        pytest.param(lambda saved: b"hello, world", id="text"),
        pytest.param(lambda saved: b"\x93NUMPY\x01", id="cut-npy"),
        pytest.param(lambda saved: saved[:-40], id="cut"),
        pytest.param(lambda saved: saved[: len(saved) // 2], id="half"),
        pytest.param(other_zip, id="another-zip"),
        pytest.param(pickled, id="pickle"),
        pytest.param(lambda saved: rewritten(saved, centers=None), id="no-centers"),
        pytest.param(lambda saved: rewritten(saved, centers=np.full((3, 2), np.nan)), id="nan"),
        pytest.param(lambda saved: rewritten(saved, centers=np.zeros((3, 2))), id="other-centers"),
        pytest.param(lambda saved: rewritten(saved, centers=np.zeros(3)), id="one-axis"),
        pytest.param(lambda saved: rewritten(saved, history=np.zeros((0, 3, 2))), id="no-history"),
        pytest.param(lambda saved: rewritten(saved, lambda facts: []), id="no-facts"),
        pytest.param(lambda saved: rewritten(saved, facts=np.zeros(3, np.uint8)), id="no-json"),
        pytest.param(lambda saved: rewritten(saved, lambda f: {**f, "class": "K(Means)"}), id="no-class"),
        pytest.param(lambda saved: rewritten(saved, lambda f: {**f, "class": ["x"]}), id="class-of-a-list"),
        pytest.param(lambda saved: rewritten(saved, lambda f: {**f, "params": 5}), id="params-of-a-number"),
        pytest.param(
            lambda saved: rewritten(saved, lambda f: {**f, "inertia": "low"}), id="inertia-of-a-text"
        ),
        pytest.param(lambda saved: rewritten(saved, lambda f: {"class": f["class"]}), id="facts-missing"),
        pytest.param(lambda saved: rewritten(saved, lambda f: {**f, "inertia": np.nan}), id="inertia-nan"),
        pytest.param(lambda saved: rewritten(saved, lambda f: {**f, "rows": np.inf}), id="rows-without-end"),
        pytest.param(lambda saved: rewritten(saved, lambda f: {**f, "columns": ["a"]}), id="few-columns"),
        pytest.param(vast, id="vast"),
    ],
)
def test_file_that_is_no_model_is_an_error(damage: Any, saved: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    path.write_bytes(damage(saved))
    with pytest.raises(RunFolderError, match=r"model\.npz is damaged, or no model"):
        privfed.load(path)


def test_any_single_damaged_byte_loads_the_same_model_or_is_an_error(saved: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    path.write_bytes(saved)
    centers = privfed.load(path).cluster_centers_
    for position in some(range(0, len(saved), 7)):
        path.write_bytes(saved[:position] + bytes([saved[position] ^ 0x55]) + saved[position + 1 :])
        try:
            loaded = privfed.load(path)
        except RunFolderError:
            continue
        np.testing.assert_array_equal(loaded.cluster_centers_, centers)


def test_a_foreign_class_is_named_with_the_remedy(saved: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.npz").write_bytes(rewritten(saved, lambda f: {**f, "class": "KMeans"}))
    with pytest.raises(RunFolderError, match=r"class 'KMeans', .*privfed\.load\(path, estimators=\[KMeans\]"):
        privfed.load(tmp_path / "model.npz")


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="cannot be read"):
        privfed.load(tmp_path / "nowhere.npz")
    with pytest.raises(RunFolderError, match="cannot be read"):
        privfed.load(tmp_path)


def test_a_file_does_not_say_where_the_next_run_is_kept(saved: bytes, blobs: Clients, tmp_path: Path) -> None:
    away = {"run_dir": str(tmp_path / "elsewhere")}
    changed = rewritten(saved, lambda f: {**f, "params": {**f["params"], **away}})
    (tmp_path / "model.npz").write_bytes(changed)
    privfed.load(tmp_path / "model.npz").fit(blobs)
    assert [one.name for one in tmp_path.iterdir()] == ["model.npz"]


def test_words_of_a_newer_version_are_left_out(saved: bytes, tmp_path: Path) -> None:
    newer = rewritten(saved, lambda f: {**f, "params": {**f["params"], "speed": "fast"}})
    (tmp_path / "model.npz").write_bytes(newer)
    assert privfed.load(tmp_path / "model.npz").n_clusters == 3
