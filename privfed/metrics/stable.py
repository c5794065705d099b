"""Are clusters found again: the same fit over parts of the clients, or of their rows.

Each refit takes a drawn part without replacement ("subsetting", Hennig, Cluster-wise assessment of cluster
stability, 2007, Computational Statistics and Data Analysis 52). Each client counts its own drawn
rows by their pair of clusters, that of the fit judged and that of the refit, and one sum adds these counts up
(`privfed.questions.lloyd.Contingency`). A cluster C is found again as well as by the nearest cluster D of
the refit, by their Jaccard coefficient:

    max over D of |C and D| / |C or D|        (over the rows that were drawn)

Reveals to whoever opens totals: those of each refit, and how many drawn rows each pair of clusters holds; a
pair can hold a single row. Fits over unlike parts tell more than one fit: with parts of clients the server
knows who is in which, and solves for a client what several totals share. Rows are drawn by the clients.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state, resample
from sklearn.utils.validation import check_is_fitted

from privfed.core.values.domain import Box, FloatArray, frozen_array
from privfed.core.values.numbers import check_number, check_whole
from privfed.errors import ArgumentError, PrivacyError
from privfed.metrics.asked import AskedMetric
from privfed.metrics.functions import checked_centers, measured
from privfed.questions.cluster_spread import ClusterPairs
from privfed.questions.lloyd import Contingency

FEWEST = 3
"""Fewest clients of a sum that hides: of two, each would learn the other's answer."""


def stability(
    estimator: Any,
    clients: list[Any] | None = None,
    *,
    n_resamples: int = 20,
    parts: str = "clients",
    share: float = 0.5,
    engine: Any = None,
    seed: int = 0,
) -> FloatArray:
    """Return how well the clusters of a fit are found again in parts of its clients or rows.

    Args:
        estimator: fitted, with `predict`, such as `DWFKMeans`, `FederatedGaussianMixture` or
            `MergedClusters`. Refits are copies with its parameters, each with other random numbers.
        clients: list of the tables of its fit, of shape (n_i, n_features); None with `engine`.
        n_resamples: number of refits.
        parts: "clients" draws clients and keeps all their rows, "rows" draws rows of each client.
        share: of the clients (at least two, or three over sums that hide), or of the rows of each (at least
            one), in (0, 1).
        engine: whose clients are nodes with their rows, such as `FlowerEngine(folder)`: parts are of clients,
            each refit is a fit of theirs and one agreement more, and their policies say how many they allow.
            Rows count for the nearest center, of a mixture for the nearest mean.
        seed: of the draws.

    Returns:
        Jaccard coefficient of each cluster with the nearest one of each refit, float64 of shape
        (n_resamples, n_clusters); NaN where no row of a cluster was drawn. Its mean over refits is the
        cluster's stability.

    Raises:
        ArgumentError: a parameter is out of its bounds, or all clients would be drawn each time; or nodes are
            asked about rows.
        RefusedError: a node's policy does not allow so many fits, or changes of the list of clients.
        PrivacyError: the fit has differential privacy, or groups of rows.
    """
    check_whole("n_resamples", n_resamples, 1)
    check_number("share", share, "(0, 1)")
    if engine is not None:
        if parts != "clients" or clients is not None:
            raise ArgumentError(
                "nodes are refitted in parts of clients, with their own rows; leave clients and parts out.",
                parameters=["clients", "parts"],
            )
        clients = list(engine.members.names)
    if not isinstance(clients, list | tuple) or parts not in ("clients", "rows"):
        raise ArgumentError(
            'clients must be a list of tables, and parts "clients" or "rows", got '
            f"{type(clients).__name__} and {parts!r}.",
            parameters=["clients", "parts"],
        )
    fit = vars(estimator).get("estimator_", estimator)
    check_is_fitted(fit, "cluster_centers_")
    if fit.privacy is not None or (fit.policy is not None and fit.policy.group_size > 1):
        raise PrivacyError(
            "refits and exact counts would say more than this fit claims, or its groups of rows allow: judge "
            "the same estimator without privacy= or groups where the parties agree, or read `intervals()` "
            "and the warnings of the fit, which cost nothing."
        )
    n_drawn = max(2 if fit.protocol == "plain" else FEWEST, int(np.ceil(share * len(clients))))
    rng = check_random_state(seed)
    if parts == "clients" and n_drawn >= len(clients):
        raise ArgumentError(
            f"{n_drawn} of {len(clients)} clients would be drawn each time; take parts='rows'.",
            parameters=["parts", "share"],
        )
    words: dict[str, Any] = {"replace": False, "random_state": rng}
    found = []
    for _ in range(n_resamples):
        if parts == "clients":
            places = resample(range(len(clients)), n_samples=n_drawn, **words)
            drawn = [clients[place] for place in places]
        else:
            places = range(len(clients))
            drawn = [resample(one, n_samples=int(np.ceil(share * len(one))), **words) for one in clients]
        again = clone(estimator)
        again.set_params(
            **{
                name: None if name.endswith("run_dir") else int(rng.randint(2**31))
                for name in again.get_params()
                if name.endswith(("random_state", "run_dir"))
            }
        )
        if engine is None:
            # A client has its name of the fit, by which its rows may be bounded.
            again.fit(drawn, client_names=[str(place) for place in places])
            found.append(_jaccard(_pairs(estimator, again, drawn, fit)))
        else:
            some = engine.among([name for name in engine.members.names if name in drawn])
            again.set_params(**{one: some for one in again.get_params() if one.endswith("engine")}).fit()
            found.append(_jaccard(_pairs_there(estimator, again, some, fit)))
            some.end_fits()
    return np.stack(found)


def _jaccard(table: FloatArray) -> FloatArray:
    """Return the largest Jaccard coefficient of each cluster; NaN of one without rows."""
    rows = table.sum(axis=1, keepdims=True)
    return np.where(
        rows[:, 0] > 0.0, (table / np.maximum(rows + table.sum(axis=0) - table, 1.0)).max(axis=1), np.nan
    )


def _pairs_there(estimator: Any, again: Any, engine: Any, fit: Any) -> FloatArray:
    """Return how many rows of nodes each pair of clusters holds."""
    own, others = (vars(one).get("estimator_", one).cluster_centers_ for one in (estimator, again))
    asked = AskedMetric.about(ClusterPairs, checked_centers(own), others=frozen_array(others))
    options = {"protocol": fit.protocol, "engine": engine}
    pairs = np.rint(measured(None, None, None, options, asked, "stability")["table"])
    # The mean of a component may lie where another one is likelier, and is its own all the same.
    mine, theirs = (
        vars(one).get("joined_", np.arange(n)) for one, n in zip((estimator, again), pairs.shape, strict=True)
    )
    return np.asarray(np.eye(int(mine.max()) + 1)[mine].T @ pairs @ np.eye(int(theirs.max()) + 1)[theirs])


def _pairs(estimator: Any, again: Any, drawn: list[Any], fit: Any) -> FloatArray:
    """Return how many drawn rows each pair of clusters holds."""
    both = estimator, again
    sizes = [int(vars(one).get("n_clusters_") or len(one.cluster_centers_)) for one in both]
    labels = [sizes[1] * estimator.predict(one).astype(np.int64) + again.predict(one) for one in drawn]
    # A pair is one label, and all rows lie at one center: nothing but labels is asked about.
    asked = AskedMetric.about(Contingency, np.zeros((1, 1)), n_labels=sizes[0] * sizes[1])
    options = {"protocol": fit.protocol, "policy": fit.policy, "domain": Box(-1.0, 1.0)}
    total = measured([np.zeros((len(one), 1)) for one in labels], labels, None, options, asked, "stability")
    return np.rint(total["table"]).reshape(sizes)
