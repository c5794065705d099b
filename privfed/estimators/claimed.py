"""What all fitted estimators share: their claim of differential privacy, and what a copy of them may hold."""

from __future__ import annotations

from typing import Any

from privfed.estimators.bases import BaseEstimator
from privfed.privacy.claim import PrivacySpent, unless_rehearsed

FROM_ROWS = ("labels_",)
"""Fitted attributes that are computed from the clients' rows themselves, and not from totals alone."""


class RowLabels:
    """The fitted `labels_`: a plain attribute where there are any, and an error that says why elsewhere."""

    def __get__(self, estimator: Any, kind: type) -> Any:
        if estimator is None:
            return self
        if "labels_" not in estimator.__dict__:
            raise AttributeError(
                f"this {kind.__name__} has no labels_: it is not fitted, or loaded or copied without them, "
                "or the rows lie with clients elsewhere, and their labels with them; predict(X) labels rows "
                "that you hold."
            )
        return estimator.__dict__["labels_"]

    def __set__(self, estimator: Any, labels: Any) -> None:
        estimator.__dict__["labels_"] = labels

    def __delete__(self, estimator: Any) -> None:
        del estimator.__dict__["labels_"]


class Claimed(BaseEstimator):
    """An estimator that says what it claims, and whose copies leave the clients behind.

    Attributes:
        privacy_spent_: what is claimed, and against whom; None without differential privacy.
        privacy_claim_: the same, and what is said of a rehearsal: that it is not private.
        transcript_: record of the run.
        federation_: answers further questions.
        n_features_in_: number of columns.
    """

    privacy_claim_: PrivacySpent | None
    feature_names_in_: Any

    @property
    def privacy_spent_(self) -> PrivacySpent | None:
        """What is claimed, and against whom; None without differential privacy, and for a rehearsal."""
        return unless_rehearsed(self.privacy_claim_)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle or a copy holds: the model and the record, not the federation of live clients.

        Fitted under differential privacy, it holds nothing but what follows from noised totals: labels
        are computed from rows, and no budget pays for them.
        """
        state: dict[str, Any] = super().__getstate__()
        left = {"federation_"}
        if state.get("privacy_claim_") is not None or state.get("privacy") is not None:
            left |= set(FROM_ROWS)
        return {name: value for name, value in state.items() if name not in left}
