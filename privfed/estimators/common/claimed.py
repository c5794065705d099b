"""The privacy claim of fitted estimators, and what a copy of an estimator may contain."""

from __future__ import annotations

from typing import Any

from privfed.estimators.common.bases import BaseEstimator
from privfed.privacy.claim import PrivacySpent, unless_rehearsed

FROM_ROWS = ("labels_",)
"""Fitted attributes that are computed from the clients' rows and not only from totals."""


class RowLabels:
    """Provides the fitted `labels_` as a plain attribute, or an error that says why there are none."""

    def __get__(self, estimator: Any, kind: type) -> Any:
        if estimator is None:
            return self
        if "labels_" not in estimator.__dict__:
            raise AttributeError(
                f"this {kind.__name__} has no labels_: it is not fitted, or was loaded or copied without "
                "them, or the clients keep their rows and labels elsewhere; predict(X) labels rows that you "
                "have."
            )
        return estimator.__dict__["labels_"]

    def __set__(self, estimator: Any, labels: Any) -> None:
        estimator.__dict__["labels_"] = labels

    def __delete__(self, estimator: Any) -> None:
        del estimator.__dict__["labels_"]


class Claimed(BaseEstimator):
    """Adds the privacy claim to an estimator, and keeps the clients out of its copies.

    Attributes:
        privacy_spent_: what is claimed, and against whom; None without differential privacy.
        privacy_claim_: the same; for a rehearsal it says that the run is not private.
        transcript_: record of the run.
        federation_: the federation, which answers further questions.
        n_features_in_: number of columns.
    """

    privacy_claim_: PrivacySpent | None
    feature_names_in_: Any

    @property
    def privacy_spent_(self) -> PrivacySpent | None:
        """What is claimed, and against whom; None without differential privacy and for a rehearsal."""
        return unless_rehearsed(self.privacy_claim_)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle or a copy: the model and its record, without the federation.

        Under differential privacy it holds only what follows from noised totals. Labels are left out, as
        they are computed from rows and no budget covers them.
        """
        state: dict[str, Any] = super().__getstate__()
        left = {"federation_"}
        if state.get("privacy_claim_") is not None or state.get("privacy") is not None:
            left |= set(FROM_ROWS)
        return {name: value for name, value in state.items() if name not in left}
