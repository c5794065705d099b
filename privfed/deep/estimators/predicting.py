"""What fitted models say of new rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import as_numbers, check_whole
from privfed.deep.estimators.training_plan import model_name
from privfed.deep.parameters import ModelParameters
from privfed.deep.training.local import TIMES, Training
from privfed.deep.training.trainer import MODELS, Labels, Trainer, trainer_of
from privfed.errors import ArgumentError, DataError
from privfed.estimators.fitting import check_order
from privfed.estimators.saving import Saved, check_fitted
from privfed.federation.passed import check_one_table

Metric = Callable[[npt.NDArray[Any], Labels], float]
"""From true labels and predicted ones to a number."""


def kind_of(trainer: Trainer) -> tuple[str, str]:
    """Return a torch module's layers, and its loss and optimizer, as text; nothing of models with names."""
    return str(getattr(trainer, "kind", "")), str(getattr(trainer, "trained_by", ""))


class Predicting(ModelParameters, Saved):
    """Base of the estimators of models: the classes that a fitted model gives."""

    models_: FloatArray
    _training_: Training
    _kind_: str
    _trained_by_: str

    @property
    def _width(self) -> int:
        """Number of features of a row, without its times."""
        return self.n_features_in_ - TIMES * self._training_.timed

    def _registered(self) -> str:
        """Return the name that the model has in this process."""
        name = self._training_.model
        if name not in MODELS and isinstance(self.model, str):
            raise ArgumentError(
                "this model was trained with a torch module, which files do not hold: pass one of the same "
                "layers, set_params(model=module), before it predicts."
            )
        return name if name in MODELS else model_name(self.model, self.loss, self.optimizer)

    def _trainer(self) -> Trainer:
        """Return the model, which is the one that was trained."""
        name = self._registered()
        trainer = trainer_of(name, self._width, self._training_.n_classes)
        kind, trained = kind_of(trainer)[0], self._kind_
        if (trained and kind != trained) or trainer.n_parameters != self.models_.shape[1]:
            raise ArgumentError(
                f"the module is another one than was trained: {kind or name}, of {trainer.n_parameters} "
                f"parameters; the trained one is {trained or self._training_.model}, of "
                f"{self.models_.shape[1]}. Pass a module of the same layers."
            )
        return trainer

    def _check_trains_alike(self) -> None:
        """Check that training here takes the loss and optimizer of the fit, which predictions do not need."""
        found, known = kind_of(self._trainer())[1], self._trained_by_
        if found != known:
            raise ArgumentError(
                f"training here is by {found}; the fit was by {known or 'what the file does not say'}. Files "
                "hold neither: pass those of the fit, set_params(loss=loss, optimizer=optimizer)."
            )

    def _model(self, cluster: int | None) -> FloatArray:
        n_models = len(self.models_)
        if cluster is None and n_models > 1:
            raise ArgumentError(
                f"there are {n_models} models, one for each cluster of clients: name one, as predict(X, "
                "cluster=0). The cluster of each client of the fit is in labels_, if clients were simulated."
            )
        check_whole("cluster", cluster, 0, n_models - 1, or_none=True)
        return np.asarray(self.models_[cluster or 0])

    def predict(self, X: npt.ArrayLike, cluster: int | None = None) -> Labels:
        """Return the classes that a cluster's model gives, int64 of shape (n_rows,).

        Args:
            X: features, float64 of shape (n_rows, n_features), without times.
            cluster: whose model; a client's own is in `labels_`. None where there is one model.

        Raises:
            NotFittedError: it is not fitted.
            ArgumentError: there are several models, and none is named; or the rows have other features.
            DataError: the rows hold NaN or infinity.
        """
        check_fitted(self, "models_")
        return self.classify(self._model(cluster), X)

    def score(
        self, X: npt.ArrayLike, y: npt.ArrayLike, cluster: int | None = None, metric: Metric | None = None
    ) -> float:
        """Return how well a cluster's model does on labelled rows: its accuracy, or a metric of the caller's.

        Reveals: nothing is sent; it runs where the rows are.

        Args:
            X: as for `predict`, with the same errors.
            y: true labels, integers of shape (n_rows,).
            cluster: as for `predict`.
            metric: from true labels and predicted ones, int64 of shape (n_rows,) each, to a number, as those
                of `sklearn.metrics`; None for the accuracy.

        Raises:
            ArgumentError: y is not one label for each row, or metric no function.
        """
        found, true = self.predict(X, cluster), np.asarray(y)
        if not (metric is None or callable(metric)):
            raise ArgumentError(
                f"metric must be a function such as sklearn.metrics.balanced_accuracy_score, got {metric!r}.",
                parameters=["metric"],
            )
        if true.dtype.kind not in "biuf":
            raise ArgumentError(f"y must be whole numbers, as in fit, got {true.dtype}.", parameters=["y"])
        if true.shape != found.shape or not len(found):
            raise ArgumentError(
                f"y must have a label for each row of X, at least one; got shape {true.shape} "
                f"for {len(found)} rows.",
                parameters=["y"],
            )
        return float(np.mean(true == found) if metric is None else metric(true, found))

    def classify(self, parameters: FloatArray, X: npt.ArrayLike) -> Labels:
        """Return the classes that any parameters of the model give, such as those of `history_`.

        Args:
            parameters: float64 of shape (n_parameters,).
            X: as for `predict`, with the same errors.
        """
        check_fitted(self, "models_")
        return self._trainer().predict(parameters, self._rows(X))

    def _rows(self, X: Any) -> FloatArray:
        check_one_table(X)
        columns, names = getattr(X, "columns", None), vars(self).get("feature_names_in_")
        if columns is not None and names is not None:
            check_order(columns, names[: self._width])
        rows = as_numbers("X", X)
        if rows.ndim != 2 or rows.shape[1] != self._width:
            times = ", without times" * self._training_.timed
            raise ArgumentError(
                f"X must be a table of shape (n_rows, {self._width}), of the features that the model was "
                f"trained on{times}; got shape {rows.shape}."
            )
        odd = int((~np.isfinite(rows).all(axis=1)).sum())
        if odd:
            raise DataError(f"{odd} rows of X hold NaN or infinity; drop or impute them.")
        return np.ascontiguousarray(rows)  # Torch takes no rows of reversed images.
