"""Scikit-learn's checks of its estimators: by default for the first one, for the others in slow tests."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import parametrize_with_checks


def scikit_learns_checks(first: BaseEstimator, *others: BaseEstimator) -> pytest.MarkDecorator:
    """Return the parameters (estimator, check) of a test."""
    words = parametrize_with_checks([first]).kwargs
    listed = [one for own in (first, *others) for one in parametrize_with_checks([own]).args[1]]
    return pytest.mark.parametrize("estimator, check", [_slow_but(first, one) for one in listed], **words)


def _slow_but(first: BaseEstimator, case: Any) -> Any:
    values, marks = (case.values, case.marks) if hasattr(case, "values") else (case, ())
    return pytest.param(*values, marks=[*marks, *([] if values[0] is first else [pytest.mark.slow])])
