"""A client's local training: epochs of SGD from a given model, and the update, clipped.

With `noise_multiplier` it is DP-SGD (Abadi et al. 2016, arXiv 1607.00133, algorithm 1) instead, in
`privfed.deep.training.dp_sgd`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from privfed.core.asking.declaration import Declaration, Trained
from privfed.core.asking.question import ClientData, register
from privfed.core.stored.encoding import asdict
from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import check_bound
from privfed.deep.parameters import DPSGD, LocalTraining, Models
from privfed.deep.training.dp_sgd import USUAL, Descent, private_sgd
from privfed.deep.training.probing import private_trainer_of
from privfed.deep.training.trainer import MODELS, Labels, Trainer, TrainsItself, trainer_of
from privfed.errors import ArgumentError, DataError
from privfed.estimators.checking import check_values
from privfed.estimators.declaring import parameters_of
from privfed.privacy.bounds import shortened
from privfed.privacy.sampler import noise_source

HELD = 5
"""Of so many rows a client holds one out."""


def clipped(vector: FloatArray, limit: float) -> FloatArray:
    """Return a vector at most so long (`shortened`); one well below, which rounding does not reach, as it is.

    Args:
        vector: float64 of shape (size,).
        limit: L2 norm.
    """
    with np.errstate(all="ignore"):
        below = float(vector @ vector) < 0.99 * limit * limit
    return vector if below else np.asarray(shortened(vector[None], limit)[0])


TIMES = 2
"""Columns that say when a row is there, where rows have times: first round, and first round without it."""


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class Training(Descent):
    """The training of a run, the same for all clients: they agree on it, and each round's question holds it.

    Fields that are not listed are parameters of the estimators, of the same names and bounds
    (`privfed.deep.parameters`), or those of `Descent`.

    Args:
        model: registered name (`privfed.deep.training.trainer.MODELS`).
        timed: whether the last two columns of the rows are times (`TIMES`), which are no features.
        seed: of models, of the server's draws and of batches.
        sampled: whether a round asks the configuration's cohort, or everyone.
        held_until: round up to which a client holds a fifth of its rows out; 0 for none.
    """

    trains: ClassVar[bool] = True
    model: str
    n_classes: int = USUAL.n_classes
    timed: bool = USUAL.timed
    start: str = USUAL.start
    weighting: str = "clients"
    rounds: int = USUAL.rounds
    batch_size: int | None = USUAL.batch_size
    max_update_norm: float = USUAL.max_update_norm
    seed: int = 0
    sampled: bool = False
    held_until: int = 0

    def __post_init__(self) -> None:
        groups = (Models, LocalTraining, DPSGD) if self.private else (Models, LocalTraining)
        for group in groups:
            check_values(parameters_of(group), asdict(self))
        check_bound("max_update_norm", self.max_update_norm)
        for name, value in (("learning_rate", self.decayed_rate), ("max_update_norm", self.max_update_norm)):
            if not 0.0 < value < 2.0**100:
                raise ArgumentError(
                    f"{name} must be positive and finite in all rounds, got {value}.", parameters=[name]
                )
        if self.round < 1 or not 0 <= self.seed < 2**63:
            raise ArgumentError(
                f"round must be at least 1 and seed lie in [0, 2**63), got {self.round} and {self.seed}."
            )
        if self.private and self.by_rows:
            raise ArgumentError("DP-SGD counts all clients alike, since numbers of rows are not noised.")
        if self.private:
            _ = self.sampled_steps

    def at(self, number: int) -> Training:
        """Return the training of a round."""
        return replace(self, round=number)

    @property
    def by_rows(self) -> bool:
        """Whether clients count by their rows in averages, or all alike."""
        return self.weighting == "rows"

    @property
    def public_seed(self) -> int:
        """The seed's remainder by 2^32: of batches, and of projections."""
        return self.seed % 2**32

    @property
    def declaration(self) -> Declaration:
        """A user's own model is the parties' code, which may fail on some rows; DP-SGD is declared."""
        trained = Trained(self.round, self.sampled_steps) if self.private else None
        can_fail = self.model in MODELS.added()
        return Declaration(can_fail=can_fail, classes=self.n_classes, times=self.timed, trained=trained)

    def trainer(self, n_columns: int) -> Trainer:
        """Return the model of rows with so many columns.

        Raises:
            PrivacyError: with DP-SGD, its gradients are not each a row's own.
        """
        of_model = private_trainer_of if self.private else trainer_of
        return of_model(self.model, n_columns - TIMES * self.timed, self.n_classes)

    def rows_of(self, client: ClientData, held: bool = False) -> tuple[FloatArray, Labels]:
        """Return the rows that a client trains on in this round, and their labels.

        Rows whose label is no class are left out: an error would tell of them.

        Args:
            client: with its rows.
            held: whether those that it holds out are meant instead.

        Raises:
            DataError: it has no labels.
        """
        if client.labels is None:
            raise DataError("training needs labels: pass y, one array of integer codes a client.")
        features, labels = client.features, client.labels
        now = np.ones(len(labels), dtype=bool)
        if self.timed:
            now = (features[:, -2] <= self.round) & (self.round < features[:, -1])
            features, labels = features[now, :-TIMES], labels[now]
        known = (labels >= 0) & (labels < self.n_classes)
        if held or self.round <= self.held_until:
            order = np.random.default_rng([self.public_seed, 0]).permutation(len(client.features))
            out = np.zeros(len(order), dtype=bool)
            out[order[: len(order) // HELD]] = True
            known &= (out if held else ~out)[now]
        return features[known], labels[known]

    def tuned(
        self, client: ClientData, start: FloatArray, generator: np.random.Generator, rounds: Iterable[int]
    ) -> FloatArray:
        """Return the model that a client alone trains from another, in these rounds one after the other."""
        for number in rounds:
            start = start + self.at(number).update(client, start, generator)
        return start

    def update(self, client: ClientData, start: FloatArray, generator: np.random.Generator) -> FloatArray:
        """Return how far training moves a model, clipped, float64 of shape (n_parameters,).

        A client without rows in this round, or one whose model does not stay finite, moves it by nothing; the
        client's own log has the latter.

        Args:
            client: with its rows.
            start: the model, float64 of shape (n_parameters,).
            generator: the client's; it names where noise comes from.
        """
        trainer = self.trainer(client.n_features)
        features, labels = self.rows_of(client)
        if self.private:
            source = noise_source(generator)
            moved = private_sgd(trainer, start, features, labels, self, source, client.errors) - start
        else:
            moved = self._sgd(trainer, start, features, labels) - start
        found = clipped(moved, self.max_update_norm)
        if found is not moved and not np.isfinite(moved).all():
            client.errors.append(
                ArgumentError(f"training in round {self.round} did not stay finite: lower the learning rate.")
            )
        return found

    def _sgd(self, trainer: Trainer, start: FloatArray, features: FloatArray, labels: Labels) -> FloatArray:
        rng, n = np.random.default_rng([self.public_seed, self.round]), len(features)
        whole = self.first_rate != 0.0 and self.round == 1
        size = 2 * n if whole or self.batch_size is None else self.batch_size
        if not n:
            return start
        orders = (rng.permutation(n) for _ in range(self.epochs))
        # Equally large: a rest of few rows would weigh as much as any other batch.
        # As many steps as with the rows that are held out.
        most = n * HELD // (HELD - 1) if self.round <= self.held_until else n
        batches = (part for order in orders for part in np.array_split(order, min(n, -(-most // size))))
        with np.errstate(all="ignore"):  # What does not stay finite is no update.
            if isinstance(trainer, TrainsItself):
                return trainer.trained(start, features, labels, batches, self.decayed_rate)
            found = start.copy()
            for batch in batches:
                found -= self.decayed_rate * trainer.gradient(found, features[batch], labels[batch])
        return found
