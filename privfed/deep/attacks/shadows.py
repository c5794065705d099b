"""Scores of candidates beside shadow fits: models that are known to be trained with some of them, or without.

LiRA (Carlini et al. 2022, arXiv 2112.03570) compares a row's logit with those of shadow fits with the row
and without it. RMIA (Zarifzadeh, Liu and Shokri 2024, arXiv 2312.03262) divides a row's probability by what
it is in shadow fits. Its last step compares this ratio with those of other rows. All candidates are compared
with the same rows, so that it does not change their order, and is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from privfed.core.asking.question import ClientData
from privfed.core.values.domain import FloatArray
from privfed.deep.training.rounds import Round
from privfed.deep.training.trainer import Labels
from privfed.errors import ArgumentError

OFFLINE = 0.3
"""How far a probability without a row stands for that with it: `a` of RMIA, offline."""


@dataclass(frozen=True, eq=False)
class Shadow:
    """A fit of the attacker's own.

    Args:
        models: what was fitted, float64 of shape (n_models, n_parameters), such as `models_`.
        inside: which candidates it was trained on, bool of shape (n_candidates,).
    """

    models: FloatArray
    inside: npt.NDArray[np.bool_]


def shadows_of(
    rounds: Sequence[Round],
    rows: FloatArray,
    labels: Labels,
    n: int,
    n_clients: int,
    rng: np.random.Generator,
) -> list[Shadow]:
    """Return shadow fits of federated averaging, each of one half of the candidates by chance.

    Args:
        rounds: of the run that is attacked: its training is repeated, from its first model, without noise.
        rows: the candidates, float64 of shape (n_candidates, n_columns).
        labels: theirs, integers of shape (n_candidates,).
        n: number of fits. They come in pairs, of one half and of the other.
        n_clients: clients of each.
        rng: draws the halves.
    """
    trained = {one.training.round: replace(one.training, noise_multiplier=0.0) for one in rounds}
    start, found = rounds[0].models.mean(axis=0), list[Shadow]()
    for number in range(n):
        inside = np.argsort(rng.permutation(len(rows))) * 2 < len(rows)
        inside = ~found[-1].inside if number % 2 else inside
        parts = np.array_split(rng.permutation(np.flatnonzero(inside)), n_clients)
        clients = [ClientData(rows[part], labels[part]) for part in parts if len(part)]
        model = start
        for training in trained.values():
            model = model + np.mean([training.update(one, model, rng) for one in clients], axis=0)
        found.append(Shadow(model[None], inside))
    return found


def scored(
    statistic: str, losses: Callable[[FloatArray], FloatArray], models: FloatArray, shadows: Sequence[Shadow]
) -> FloatArray:
    """Return a score for each candidate, float64 of shape (n_candidates,).

    Args:
        statistic: "lira" or "rmia".
        losses: of the candidates under models, from (n_models, n_parameters) to (n_models, n_candidates).
        models: that are attacked, float64 of shape (n_models, n_parameters).
        shadows: fits with and without candidates.

    Raises:
        ArgumentError: a shadow fit is not of these candidates, or two fits without a candidate are missing.
    """
    own = losses(models).min(axis=0)
    inside = np.array([one.inside for one in shadows], dtype=np.bool_)
    if inside.shape != (len(shadows), len(own)):
        raise ArgumentError(f"each shadow fit must say of {len(own)} candidates whether it has them.")
    if (~inside).sum(axis=0).min() < 2:
        raise ArgumentError("each candidate needs two shadow fits that were trained without it; pass more.")
    theirs = np.stack([losses(one.models).min(axis=0) for one in shadows])
    # Where some candidate is in no shadow fit, all are judged by the fits without them.
    online = bool(inside.any(axis=0).all())
    if statistic == "rmia":
        out = _mean(np.exp(-theirs), ~inside)
        within = _mean(np.exp(-theirs), inside) if online else OFFLINE * out + 1.0 - OFFLINE
        return np.asarray(-own - np.log((within + out) / 2.0))
    value, each = _logit(own), _logit(theirs)
    out, spread = _mean(each, ~inside), _spread(each, ~inside)
    if not online:
        return np.asarray((value - out) / spread)
    within, wide = _mean(each, inside), _spread(each, inside)
    return np.asarray(
        (np.square((value - out) / spread) - np.square((value - within) / wide)) / 2.0 + np.log(spread / wide)
    )


def _logit(losses: FloatArray) -> FloatArray:
    """Return log(p / (1 - p)) of the probability p = exp(-loss)."""
    kept = np.clip(losses, 1e-12, None)
    return np.asarray(-kept - np.log(-np.expm1(-kept)))


def _mean(values: FloatArray, of: npt.NDArray[np.bool_]) -> FloatArray:
    return np.asarray((values * of).sum(axis=0) / of.sum(axis=0))


def _spread(values: FloatArray, of: npt.NDArray[np.bool_]) -> float:
    """Return one standard deviation for all candidates, as is advised for few shadow fits."""
    apart = np.square(values - _mean(values, of)) * of
    return float(np.sqrt(apart.sum() / max(of.sum() - len(values.T), 1))) + 1e-12
