"""The estimators are scikit-learn estimators."""

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from privfed import DWFKMeans, EWFKMeans, WFKMeans
from tests.estimators.checks import scikit_learns_checks

MODELS = [DWFKMeans, EWFKMeans, WFKMeans]
# One client: over any other sum the total would be that client's answer.
ESTIMATORS = [model(protocol="plain") for model in MODELS]


@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API:sklearn.exceptions.SkipTestWarning")
@scikit_learns_checks(*ESTIMATORS)
def test_scikit_learns_check(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("model", MODELS)
def test_clone_has_the_same_words_and_no_fit(model: type[DWFKMeans], blobs: list[np.ndarray]) -> None:
    fitted = model(3, local_iter=2, protocol="plain", max_iter=2, tol=0).fit(blobs)
    again = clone(fitted)
    assert again.get_params() == fitted.get_params()
    assert not hasattr(again, "cluster_centers_")


@pytest.mark.parametrize("model", MODELS)
def test_pickled_model_predicts_and_leaves_the_live_clients_behind(
    model: type[DWFKMeans], blobs: list[np.ndarray]
) -> None:
    fitted = model(3, protocol="plain", max_iter=2, tol=0).fit(blobs)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(blobs[0]), fitted.predict(blobs[0]))
    assert again.transcript_.records == fitted.transcript_.records
    assert not hasattr(again, "federation_")
    assert hasattr(fitted, "federation_")


def test_in_a_pipeline_with_groups(blobs: list[np.ndarray]) -> None:
    rows, groups = np.concatenate(blobs), np.repeat(np.arange(10), [len(one) for one in blobs])
    pipeline = make_pipeline(StandardScaler(), DWFKMeans(3, protocol="plain", max_iter=3))
    pipeline.fit(rows, dwfkmeans__groups=groups)
    assert pipeline.predict(rows).shape == (len(rows),)
    assert pipeline[-1].transcript_.configuration.clients == tuple(map(str, range(10)))
