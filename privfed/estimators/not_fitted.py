"""The error of an estimator that is asked before it was fitted: scikit-learn's too, for its checks."""

from sklearn.exceptions import NotFittedError as _SklearnNotFittedError

from privfed.errors import PrivFedError


class NotFittedError(PrivFedError, _SklearnNotFittedError):
    """An estimator is asked for something that only a fitted one has."""
