"""The error of an estimator that is used before it was fitted; it is also scikit-learn's, for its checks."""

from sklearn.exceptions import NotFittedError as _SklearnNotFittedError

from privfed.errors import PrivFedError


class NotFittedError(PrivFedError, _SklearnNotFittedError):
    """Signals that an estimator was asked for something that only a fitted one has."""
