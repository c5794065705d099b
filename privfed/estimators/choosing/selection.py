"""Chooses the number of clusters for any algorithm by any index, all through secure sums.

Stallmann and Wilbik, On a Framework for Federated Cluster Analysis, 2022, section 2.2.3: fit each number
of a range, ask for the index, and take its minimum or its elbow.

Reveals: for each number of clusters what its fit and its index show; without a range, also how many
clients find each number of clusters on their own (`privfed.metrics.local_clusters`). More fits of the
same rows reveal more about them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from privfed.core.connection import Members
from privfed.core.federation import Federation, Watcher
from privfed.core.record.transcript import FILE as TRANSCRIPT
from privfed.core.record.transcript import Exchanged, Summed, Transcript, has_begun
from privfed.errors import ArgumentError, PrivacyError, UndefinedIndexError
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.choosing.elbow import FEWEST_FOR_ELBOW, Rule, chosen
from privfed.estimators.choosing.indices import INDICES, Index, asked, index_or_metric
from privfed.estimators.choosing.private_selection import SHARED, choose_privately
from privfed.estimators.registry import ESTIMATORS, SHORT
from privfed.federation.builder import seed_from
from privfed.federation.clients import Clients
from privfed.federation.run_dir import folder_to_resume
from privfed.metrics.local_clusters import MOST, LocalClusters, local_cluster_counts
from privfed.privacy.claim import PrivacySpent, noised_fields, noised_mark
from privfed.privacy.privacy import Privacy

Watching = Callable[[int], AbstractContextManager[Watcher]]
"""Returns, for a number of clusters, a context in which its fit is watched."""


@dataclass(frozen=True, slots=True)
class SelectionRow:
    """Holds the results for one number of clusters.

    Args:
        n_clusters: the number.
        index: the index; NaN if it is undefined (fewer than two clusters held rows).
        inertia: pooled sum of squared distances to the nearest center.
        rounds: rounds of the fit.
        sums: number of sums that were opened for the fit and the index.
        bytes: bytes sent for these, to and from all clients together.
        converged: whether a stop rule ended the fit; None if its rounds were fixed.
        remedy: why it did not converge and what helps; empty if it did.
    """

    n_clusters: int
    index: float
    inertia: float | None
    rounds: int
    sums: int
    bytes: int
    converged: bool | None = None
    remedy: str = ""


FROM_TOTALS = ("rows", "n_clusters", "table.index", "centroids")
"""Results of a selection that come from totals alone, by their names in JSON."""


@dataclass(frozen=True, eq=False)
class SelectionResult:
    """Holds the chosen number of clusters, and the results for all candidates.

    Args:
        n_clusters: the chosen number.
        index: name of the index.
        rule: rule by which the number was chosen: "minimum", "maximum" or "elbow".
        table: one row for each candidate, ascending.
        models: the fitted estimators, in the order of the table.
        local: what the clients found on their own, if no range was given.
    """

    n_clusters: int
    index: str
    rule: Rule
    table: tuple[SelectionRow, ...]
    models: tuple[FederatedClusterer, ...]
    local: LocalClusters | None = None

    @property
    def estimator(self) -> FederatedClusterer:
        """The estimator fitted with the chosen number of clusters."""
        return self.models[[row.n_clusters for row in self.table].index(self.n_clusters)]

    @property
    def privacy_claim(self) -> PrivacySpent | None:
        """The privacy claim for all fits and the choice together; None without differential privacy."""
        return self.models[0].privacy_claim_

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the models, as values that JSON can hold."""
        claim, rows = self.privacy_claim, [asdict(row) for row in self.table]
        for row in rows:
            row["index"] = row["index"] if np.isfinite(row["index"]) else None
        return {
            "n_clusters": self.n_clusters,
            "index": self.index,
            "rule": self.rule,
            "privacy": None if claim is None else claim.to_dict(),
            "noised": list(noised_fields(claim, *FROM_TOTALS)),
            "local_clusters": None if self.local is None else list(self.local.clients),
            "table": rows,
        }

    def __str__(self) -> str:
        claim = self.privacy_claim
        name = f"{self.index}{noised_mark(claim)}"
        wide = max(22, len(name))
        lines = [f"{'K':>4} {name:>{wide}} {'inertia':>12} {'rounds':>7} {'sums':>6} {'bytes':>13}"]
        for row in self.table:
            inertia = "" if row.inertia is None else f"{row.inertia:.6g}"
            mark = " <" if row.n_clusters == self.n_clusters else ""
            mark += " (not converged)" if row.converged is False else ""
            lines.append(
                f"{row.n_clusters:>4} {row.index:>{wide}.6g} {inertia:>12} {row.rounds:>7} {row.sums:>6} "
                f"{row.bytes:>13,}{mark}"
            )
        said = [] if claim is None else [SHARED, str(claim)]
        return "\n".join([*lines, f"{self.n_clusters} clusters: {self.rule} of {name}", *said])


def select_n_clusters(
    clients: Any = None,
    range: Iterable[int] | None = None,
    *,
    estimator: FederatedClusterer | str = "dwf",
    index: str | Callable[[Federation, Any], float] = "davies_bouldin",
    rule: Rule | None = None,
    groups: Any = None,
    client_names: Iterable[Any] | None = None,
    resume: bool = False,
    watch: Watching | None = None,
    **words: Any,
) -> SelectionResult:
    """Fit each number of clusters and choose one by an index.

    Args:
        clients: a list of tables of shape (n_i, n_features), one for each client; or one table with
            `groups`; or a fitted federation (`model.federation_`). The latter's clients, protocol, domain
            and cohorts are used for every fit, its transcript records all of them, and the models have no
            `labels_`, as the rows stay with its clients. These answer only as many sums as they agreed to
            when it was opened.
        range: numbers of clusters to try, each from 2 up to the rows of all clients. None asks how many
            clusters each client finds on its own and uses the paper's rule of thumb: from the smallest
            number to the smallest plus the largest.
        estimator: an estimator, which is copied for each fit; or a registered name ("dp", "dwf", "ewf",
            "lloyd", "minibatch", "fkm", "kfed", "fuzzy", or that of a class); or "module:Class" of your own.
        index: "davies_bouldin", "fuzzy_davies_bouldin" (with the estimator's `m`, or 2 if it has none),
            "simplified_silhouette", "calinski_harabasz", "mean_distance", "inertia", or a function of a
            federation and centers, together with `rule`.
        rule: "minimum", "maximum" or "elbow"; None uses the rule of a named index.
        groups: the client of each row, if `clients` is one table.
        client_names: names of all clients; needed with `groups` under differential privacy, as in
            `DWFKMeans`.
        resume: continue what an earlier call left in `run_dir`.
        watch: returns for each number of clusters a context whose value is called after every sum; not
            for a federation.
        **words: parameters of the estimator to set before it is fitted: `protocol`, `random_state`,
            `n_init`, `domain`, `privacy`, ... Each number gets its own folder in `run_dir`. With `privacy`
            one budget covers everything: the candidates are fitted on one noised coreset, only the chosen
            one is refined, the index must be one of the two Davies-Bouldin indices, and `range` is needed.

    Returns:
        The chosen number, the table and the fitted models.

    Raises:
        ArgumentError: an argument is out of its bounds.
    """
    judge = _index_of(index, rule)
    model = estimator_of(estimator, words)
    if isinstance(clients, Federation) and words:
        raise ArgumentError(f"a federation keeps its own {', '.join(sorted(words))}; leave them out.")

    def gathered(fitting: FederatedClusterer) -> Any:
        named = isinstance(clients, Clients | Federation)
        return clients if named else fitting._gather(clients, groups, None, client_names)

    if model.privacy is not None:
        return _chosen_privately(model, model.privacy, gathered, range, index, resume)
    local = None if range is not None else _local_clusters(gathered(model), model)
    candidates = _candidates(local.candidates if range is None and local is not None else range, judge.rule)
    rows, models = list[SelectionRow](), list[FederatedClusterer]()
    for number in candidates:
        fitted = clone(model).set_params(n_clusters=number)
        with nullcontext() if watch is None else watch(number) as watcher:
            row = _tried(fitted, gathered, judge, resume, watcher)
        if fitted.n_rows_ is not None and candidates[-1] > fitted.n_rows_:
            raise ArgumentError(
                f"range goes up to {candidates[-1]} clusters, more than the {fitted.n_rows_} rows of all."
            )
        models.append(fitted)
        rows.append(row)
    best = chosen(candidates, [row.index for row in rows], judge.rule, rising=judge.rising)
    name = index if isinstance(index, str) else getattr(index, "__name__", "index")
    return SelectionResult(best, name, judge.rule, tuple(rows), tuple(models), local)


def _chosen_privately(
    model: FederatedClusterer,
    privacy: Privacy,
    gathered: Callable[[FederatedClusterer], Any],
    range: Any,
    index: Any,
    resume: bool,
) -> SelectionResult:
    begun = resume and has_begun(folder_to_resume(model.run_dir))
    named = gathered(model)
    if isinstance(named, Federation) or range is None:
        raise PrivacyError(
            "under differential privacy pass clients, not a federation, and the range of numbers: "
            "looking for one would cost budget."
        )
    name, candidates = str(index), _candidates(range, "minimum")
    choice = choose_privately(model, privacy, named, candidates, name, resume=begun)
    rows = [
        SelectionRow(k, value, None, fitted.n_iter_, choice.sums, choice.sent)
        for k, value, fitted in zip(candidates, choice.indices, choice.models, strict=True)
    ]
    return SelectionResult(choice.n_clusters, name, "minimum", tuple(rows), choice.models)


def _index_of(index: Any, rule: Rule | None) -> Index:
    """Return the index with the rule to use.

    Raises:
        ArgumentError: the index is unknown, or the rule does not fit it.
    """
    if rule is not None and rule not in ("minimum", "maximum", "elbow"):
        raise ArgumentError(f'rule must be "minimum", "maximum" or "elbow", got rule={rule!r}.')
    known = index_or_metric(index) if isinstance(index, str) else index
    if callable(known):
        if rule is None:
            raise ArgumentError("an index that is a function needs a rule: which of its values is the best.")
        return Index(asked(known), rule)
    if not isinstance(known, Index):
        raise ArgumentError(f"index must be a function or one of {', '.join(INDICES)}, got index={index!r}.")
    if rule is None or rule == known.rule:
        return known
    if rule != "elbow":
        other = "" if known.rule == "elbow" else ", or by its elbow"
        raise ArgumentError(f"{index} is chosen by its {known.rule}{other}, got rule={rule!r}.")
    return Index(known.value, rule, known.rising)


def estimator_of(estimator: Any, words: dict[str, Any]) -> FederatedClusterer:
    """Return a fresh estimator with parameters set.

    Raises:
        ArgumentError: `estimator` is not one, or it does not have one of the parameters.
    """
    if isinstance(estimator, str):
        kind: Any = ESTIMATORS.resolve(estimator)
        other = isinstance(kind, type) and not issubclass(kind, FederatedClusterer)
        model: Any = None if other or not callable(kind) else kind()
    else:
        model = clone(estimator) if isinstance(estimator, FederatedClusterer) else None
    if not isinstance(model, FederatedClusterer):
        raise ArgumentError(
            f"estimator must be one that clusters rows (a FederatedClusterer, such as {', '.join(SHORT)}), "
            f"got {estimator!r}."
        )
    unknown = sorted(set(words) - set(model.get_params(deep=False)) | set(words) & {"n_clusters"})
    if unknown:
        listed = ", ".join(f"{name}=" for name in unknown)
        raise ArgumentError(f"{type(model).__name__} takes no {listed} here; leave it out.")
    model.set_params(**words)
    return model


def _local_clusters(named: Clients | Federation, model: FederatedClusterer) -> LocalClusters:
    """Ask how many clusters each client finds on its own, before the first fit."""
    seed = seed_from(model.random_state) % 2**32
    if isinstance(named, Federation):
        return local_cluster_counts(named, most=MOST, seed=seed)
    words = {name: getattr(model, name) for name in ("protocol", "domain", "policy", "engine")}
    if named.data is None:
        return local_cluster_counts(None, most=MOST, seed=seed, random_state=seed, **words)
    tables = [data.features for data in named.data]
    return local_cluster_counts(
        tables, most=MOST, seed=seed, client_names=named.names, random_state=seed, **words
    )


def _candidates(numbers: Any, rule: Rule) -> list[int]:
    if isinstance(numbers, str) or not isinstance(numbers, Iterable):
        raise ArgumentError(f"range must hold numbers of clusters, as range(2, 9) does, got {numbers!r}.")
    numbers = list(numbers)
    if any(isinstance(one, bool) or not isinstance(one, int | np.integer) or one < 2 for one in numbers):
        raise ArgumentError(f"range must hold integers of at least 2, got {numbers}.")
    candidates = sorted({int(one) for one in numbers})
    least = FEWEST_FOR_ELBOW if rule == "elbow" else 1
    if len(candidates) < least:
        raise ArgumentError(
            f"range must hold {least} or more numbers of clusters for rule={rule!r}, got {candidates}."
        )
    return candidates


def _tried(
    model: FederatedClusterer,
    gathered: Callable[[FederatedClusterer], Any],
    judge: Index,
    resume: bool,
    watcher: Watcher | None,
) -> SelectionRow:
    """Fit one number of clusters, and ask for its index."""
    named = gathered(model)
    if isinstance(named, Federation):
        _fit_over(model, named)
    else:
        model.fit_clients(named, resume=_in_own_folder(model, resume), watch=watcher)
    try:
        value = float(judge.value(model))
    except UndefinedIndexError:
        value = np.nan
    own = model.federation_
    records = [record for one in (own, *own.others) for record in one.transcript.records]
    sent = [one.size for r in records if isinstance(r, Exchanged) for one in (*r.down, *r.up)]
    opened = sum(isinstance(record, Summed) for record in records)
    return SelectionRow(
        model.n_clusters,
        value,
        model.inertia_,
        model.n_iter_,
        opened,
        sum(sent),
        model.converged_,
        model.remedy(),
    )


def _fit_over(model: FederatedClusterer, federation: Federation) -> None:
    """Fit with an open federation's clients; labels are not computed, as the rows stay with them."""
    setting, seed = federation.setting, seed_from(model.random_state)
    algorithm = model.make_algorithm(setting.n_features, seed)
    elsewhere = Clients.elsewhere(Members(setting.clients, setting.n_features))
    wanted = model._request(elsewhere, algorithm, seed)
    model.federation_ = federation.again(
        description=wanted.description,
        max_sums=wanted.max_sums,
        algorithm=algorithm,
        metrics=wanted.metrics,
        named=wanted.named,
        n_clusters=wanted.n_clusters,
    )
    model.n_features_in_ = setting.n_features
    model._keep(model.federation_.run(algorithm), elsewhere)
    model._warn_unconverged()


def _in_own_folder(model: FederatedClusterer, resume: bool) -> bool:
    """Give the model its own folder in its `run_dir`; return whether a fit to resume has begun there."""
    if model.run_dir is None and not resume:
        return False
    folder = folder_to_resume(model.run_dir) / f"k{model.n_clusters:03d}"
    model.set_params(run_dir=folder)
    return resume and has_begun(folder)


def transcripts(folder: Path) -> list[Transcript]:
    """Return the transcripts of all runs in a selection's folder; a private selection is a single run."""
    found = [folder, *(path.parent for path in sorted(folder.glob(f"k*/{TRANSCRIPT}")))]
    return [Transcript.load(one) for one in found if has_begun(one)]
