"""Chooses the number of clusters for any algorithm by any index, all through secure sums.

Stallmann and Wilbik, On a Framework for Federated Cluster Analysis, 2022, section 2.2.3: fit each number of a
range, ask for the index, and take its minimum or its elbow. Under differential privacy one budget covers all
candidates.

Reveals: for each number of clusters what its fit and its index show. Without a range, also how many clients
find each number of clusters on their own (`local_cluster_counts`). More fits of the same rows reveal more
about them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from sklearn.base import clone

from privfed.algorithms.private.kmeans import PrivateKMeans
from privfed.algorithms.private.mixtures import PrivateMixture
from privfed.algorithms.private.selection import ROWS_ONLY, PrivateSelection
from privfed.core.agreed.configuration import CohortRule
from privfed.core.connection import Members
from privfed.core.record.records import FILE as TRANSCRIPT
from privfed.core.record.records import Exchanged, Summed
from privfed.core.record.transcript import Transcript, has_begun
from privfed.core.values.guarantee import Noise, Unit
from privfed.core.values.numbers import check_word
from privfed.errors import ArgumentError, PrivacyError, UndefinedIndexError
from privfed.estimators.base import FederatedClusterer, estimator_of
from privfed.estimators.choosing import (
    FEWEST_FOR_ELBOW,
    INDICES,
    Index,
    LocalClusters,
    Rule,
    SelectionResult,
    SelectionRow,
    asked,
    chosen,
    local_cluster_counts,
)
from privfed.estimators.fitting import clients_of
from privfed.estimators.scaling import as_given, learnt
from privfed.federation.clients import Clients
from privfed.federation.driver import Federation, Watcher
from privfed.federation.opening import claim_of, open_federation
from privfed.federation.request import check_kinds, protocol_of, seed_from
from privfed.federation.simulation import folder_to_resume
from privfed.metrics.named import METRICS
from privfed.privacy.claim import Privacy
from privfed.privacy.pricing import FIXED_ONLY

Watching = Callable[[int], AbstractContextManager[Watcher]]
"""Returns, for a number of clusters, a context in which its fit is watched."""


ON_CORESETS = ("davies_bouldin", "fuzzy_davies_bouldin")
"""Indices that can be computed on a coreset."""


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
    **parameters: Any,
) -> SelectionResult:
    """Fit each number of clusters and choose one by an index.

    Args:
        clients: a list of tables of shape (n_i, n_features), one for each client; or one table with
            `groups`; or a fitted federation (`model.federation_`). Every fit uses a federation's clients,
            protocol, domain and cohorts, and its transcript records all fits. The models then have no
            `labels_`, as the rows stay with its clients. These answer only as many sums as they agreed to at
            first.
        range: numbers of clusters to try, each from 2 up to the rows of all clients. None asks how many
            clusters each client finds on its own and uses the paper's rule of thumb: from the smallest
            number to the smallest plus the largest.
        estimator: an estimator, which is copied for each fit; or "module:Class" of your own; or a registered
            name: "dp", "dwf", "ewf", "lloyd", "minibatch", "fkm", "kfed", "fuzzy", or that of a class.
        index: "davies_bouldin", "fuzzy_davies_bouldin" (with the estimator's `m`, or 2 if it has none),
            "simplified_silhouette", "calinski_harabasz", "mean_distance", "inertia", "bic" (of
            mixtures), or a function of a federation and centers, together with `rule`.
        rule: "minimum", "maximum" or "elbow"; None uses the rule of a named index.
        groups: the client of each row, if `clients` is one table.
        client_names: names of all clients; needed with `groups` under differential privacy, as in
            `DWFKMeans`.
        resume: continue what an earlier call left in `run_dir`.
        watch: returns for each number of clusters a context whose value is called after every sum; not
            for a federation.
        **parameters: those of the estimator to set before it is fitted: `protocol`, `random_state`,
            `n_init`, `domain`, `privacy`, ... Each number gets its own folder in `run_dir`. With `privacy`
            one budget covers everything: the candidates are fitted on one noised coreset, and only the chosen
            one is refined. The index must then be one of the two Davies-Bouldin indices, and `range` is
            needed.

    Returns:
        The chosen number, the table and the fitted models.

    Raises:
        ArgumentError: an argument is out of its bounds.
    """
    check_kinds({"watch": watch})
    judge, model = _index_of(index, rule), estimator_of(estimator, parameters)
    if isinstance(clients, Federation) and parameters:
        raise ArgumentError(f"a federation keeps its own {', '.join(sorted(parameters))}; leave them out.")

    kept: Any = clients if isinstance(clients, Clients | Federation) else None

    def gathered(fitting: FederatedClusterer) -> Any:
        nonlocal kept
        # Once for all fits, which thereby have the same groups of rows.
        return (kept := clients_of(model, clients, groups, None, client_names) if kept is None else kept)

    given, spent = model, None
    if model.scale is not None:
        kept = gathered(model)
        if isinstance(kept, Federation):
            raise ArgumentError(
                "a federation's rows are as they are: leave scale= out.", parameters=["scale"]
            )
        # Once for all numbers of clusters.
        scaling, model, spent = learnt(model, kept)
        kept = scaling.clients(kept, model.policy)
    if model.privacy is not None:
        found = _chosen_privately(model, model.privacy, gathered, range, index, resume)
        for one in found.models:
            one.privacy_claim_ = claim_of(one.federation_, protocol_of(model.protocol), spent)
        as_given(found.models, given)
        return found
    local: LocalClusters | None = None
    if range is None:
        # How many clusters each client finds on its own is asked before the first fit.
        seed, asked_of = seed_from(model.random_state) % 2**32, gathered(model)
        options = {name: getattr(model, name) for name in ("protocol", "domain", "policy", "engine")}
        here = None if isinstance(asked_of, Clients) and asked_of.data is None else asked_of
        own = {} if isinstance(asked_of, Federation) else {**options, "random_state": seed}
        local = local_cluster_counts(here, seed=seed, **own)
    candidates = _candidates(local.candidates if range is None and local is not None else range, judge.rule)
    rows, models = list[SelectionRow](), list[FederatedClusterer]()
    for number in candidates:
        fitted = clone(model).set_params(n_clusters=number)
        with nullcontext() if watch is None else watch(number) as watcher:
            row = _tried(fitted, gathered, judge, resume, watcher)
        if fitted.n_rows_ is not None and candidates[-1] > fitted.n_rows_:
            raise ArgumentError(
                f"range goes up to {candidates[-1]} clusters, more than the {fitted.n_rows_} rows of all.",
                parameters=["range"],
            )
        models.append(fitted)
        rows.append(row)
    as_given(models, given)
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
    """Fit all candidates on one coreset, choose one by an index, and refine it: one budget covers everything.

    Raises:
        PrivacyError: the estimator or the index cannot be computed on a coreset, the server adds the
            noise, or the unit is a client.
    """
    resume = resume and has_begun(folder_to_resume(model.run_dir))
    clients = gathered(model)
    if isinstance(clients, Federation) or range is None:
        raise PrivacyError(
            "under differential privacy say which numbers to try, range=...: looking for them would cost "
            "budget. Pass clients, not a federation."
        )
    index, candidates = str(index), _candidates(range, "minimum")
    if privacy.noise == Noise.SERVER:
        raise PrivacyError(FIXED_ONLY)
    if not Unit(privacy.unit).of_rows:
        raise PrivacyError(ROWS_ONLY)
    seed, most = model._seed(resume), candidates[-1]
    algorithm = clone(model).set_params(n_clusters=most).make_algorithm(clients.n_features, seed)
    # A mixture's rounds are paid from what its own start leaves, which is no coreset of several numbers.
    mixture = isinstance(algorithm, PrivateMixture)
    if not isinstance(algorithm, PrivateKMeans) or mixture or index not in ON_CORESETS:
        raise PrivacyError(
            f"under differential privacy the number of clusters is chosen by {' or '.join(ON_CORESETS)}, for "
            "DPKMeans, DWFKMeans(local_iter=1), FederatedMiniBatchKMeans or "
            f'FederatedFuzzyCMeans(averaging="weighted", local_iter=1); got {type(model).__name__}, {index}. '
            "Of mixtures choose it by DPKMeans, or by bic(X) of public rows."
        )
    m = float(model.m) if index == "fuzzy_davies_bouldin" else None
    selection = PrivateSelection(candidates=tuple(candidates), algorithm=algorithm, m=m)
    request = replace(
        model._request(clients, algorithm, seed, resume=resume),
        max_sums=selection.max_sums,
        algorithm=selection,
        metrics=(),
        named=None,
        n_clusters=most,
        rule=CohortRule(),
    )
    federation = open_federation(
        replace(request, description=f"{request.description} over {candidates} by {index}")
    )
    found = federation.run(selection)
    sums, sent = _costs(federation)
    rows, models = list[SelectionRow](), list[FederatedClusterer]()
    for k, value, outcome in zip(candidates, found.indices, found.outcomes, strict=True):
        fitted: Any = clone(model).set_params(n_clusters=k)
        fitted.federation_, fitted.n_features_in_ = federation, clients.n_features
        fitted.scaling_ = clients.scaling
        fitted._keep(outcome, clients)
        models.append(fitted)
        rows.append(SelectionRow(k, value, None, fitted.n_iter_, sums, sent))
    return SelectionResult(found.n_clusters, index, "minimum", tuple(rows), tuple(models))


def _costs(*federations: Federation) -> tuple[int, int]:
    """Return how many sums federations asked for, and the bytes that were sent for them."""
    records = [record for one in federations for record in one.transcript.records]
    sent = [one.size for r in records if isinstance(r, Exchanged) for one in (*r.down, *r.up)]
    return sum(isinstance(record, Summed) for record in records), sum(sent)


def _index_of(index: Any, rule: Rule | None) -> Index:
    """Return the index with the rule to use.

    Raises:
        ArgumentError: the index is unknown, or the rule does not fit it.
    """
    if rule is not None:
        check_word("rule", rule, get_args(Rule))
    known: Any = (
        (METRICS if index not in INDICES and index in METRICS else INDICES).resolve(index)
        if isinstance(index, str)
        else index
    )
    if callable(known):
        if rule is None:
            raise ArgumentError(
                'an index of your own needs a rule, which value is best: rule="minimum", "maximum" '
                'or "elbow".',
                parameters=["index", "rule"],
            )
        return Index(asked(known), rule)
    if not isinstance(known, Index):
        raise ArgumentError(
            f"index must be a function or one of {', '.join(INDICES)}, got index={index!r}.",
            parameters=["index"],
        )
    if rule is None or rule == known.rule:
        return known
    if rule != "elbow":
        other = ", or by its elbow" * (known.rule != "elbow")
        raise ArgumentError(f"{index} is chosen by its {known.rule}{other}, got rule={rule!r}.")
    return Index(known.value, rule, known.rising)


def _candidates(numbers: Any, rule: Rule) -> list[int]:
    if isinstance(numbers, str) or not isinstance(numbers, Iterable):
        raise ArgumentError(
            f"range must hold numbers of clusters, as range(2, 9) does, got {numbers!r}.",
            parameters=["range"],
        )
    numbers = list(numbers)
    if any(isinstance(one, bool) or not isinstance(one, int | np.integer) or one < 2 for one in numbers):
        raise ArgumentError(f"range must hold integers of at least 2, got {numbers}.", parameters=["range"])
    candidates = sorted({int(one) for one in numbers})
    least = FEWEST_FOR_ELBOW if rule == "elbow" else 1
    if len(candidates) < least:
        raise ArgumentError(
            f"range must hold {least} or more numbers of clusters for rule={rule!r}, got {candidates}.",
            parameters=["range"],
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
    clients = gathered(model)
    if isinstance(clients, Federation):
        _fit_over(model, clients)
    else:
        model.fit_clients(clients, resume=_in_own_folder(model, resume), watch=watcher)
    try:
        value = float(judge.value(model))
    except UndefinedIndexError:
        value = np.nan
    sums, sent = _costs(model.federation_, *model.federation_.others)
    return SelectionRow(
        n_clusters=model.n_clusters,
        index=value,
        inertia=model.inertia_,
        rounds=model.n_iter_,
        sums=sums,
        bytes=sent,
        converged=model.converged_,
        remedy=model.remedy(),
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
    model._judge(elsewhere)


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
