"""Joins a party's views of several runs into one view.

Each fit draws its own start, and so asks for sums in other cells. A party that saw five fits of the same
rows, or a fit and metrics, can attack all of their sums together. Clients that were away from one run and not
from another give more: what differs is theirs (`privfed.attacks.evidence.pooling`).

Solves totals of the same question over changing clients for the answers of single clients.

A total is t = P s, where P says who is in it, and s are the clients' answers. They are the same whenever the
same question is asked of the same rows: in a later round, or in a later fit whose cells do not change (nested
starts over a declared domain, metrics of the same centers). So a client's answer follows exactly if its unit
vector lies in the row space of P. Two fits are enough where one client was away from one of them.

Takes rows that took part out of all totals: what is left is of the others.

Makes a view of runs of other programs, from what their rounds show: centers, counts and sums.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from privfed.attacks.evidence.equations import adds_up, asked
from privfed.attacks.evidence.mapped import LinearMap, before
from privfed.core.asking.question import ClientData
from privfed.core.asking.statistics import Statistics
from privfed.core.record.records import SumView, View
from privfed.core.values.domain import FloatArray, Ranges
from privfed.core.values.numbers import as_numbers
from privfed.errors import ArgumentError
from privfed.privacy.noised import Noised
from privfed.questions.lloyd import LloydSums

_IN_SPAN = 1e-8


def with_answers(view: View) -> View:
    """Return a view that also holds the clients' answers that follow from its exact totals.

    Args:
        view: what a party saw, of one run or of several (`privfed.attacks.pooled`).

    Returns:
        The view, with these answers in the first sum of each question that a client was in. Sums with noise
        are left as they are.
    """
    groups: dict[bytes, list[SumView]] = defaultdict(list)
    for one in view.sums:
        if one.question is not None and one.total is not None and not isinstance(one.question, Noised):
            groups[one.question.at(None).to_bytes()].append(one)
    sums = {one.index: one for one in view.sums}
    for group in groups.values():
        if len({frozenset(one.contributors or one.cohort) for one in group}) > 1:
            for client, answer in _solved(group, len(view.clients)).items():
                first = next(one.index for one in group if client in (one.contributors or one.cohort))
                sums[first] = replace(sums[first], answers={client: answer, **sums[first].answers})
    return replace(view, sums=tuple(sums.values()))


def separable(took_part: FloatArray) -> FloatArray:
    """Say which clients' unchanging answers the cohorts determine: those with e_i in the row space of P.

    Args:
        took_part: float64 of shape (n_rounds, n_clients).

    Returns:
        bool of shape (n_clients,).
    """
    return np.asarray(np.diag(np.linalg.pinv(took_part) @ took_part) > 1.0 - _IN_SPAN)


def _solved(group: list[SumView], n_clients: int) -> dict[int, Statistics]:
    """Return the answers that follow, by client, of those that were not shown."""
    took_part = np.zeros((len(group), n_clients))
    for row, one in zip(took_part, group, strict=True):
        row[list(one.contributors or one.cohort)] = 1.0
    weights = np.linalg.pinv(took_part)
    shown = {client for one in group for client in one.answers}
    totals = [one.total for one in group if one.total is not None]
    return {
        int(client): Statistics(
            **{
                name: np.tensordot(weights[client], np.stack([total[name] for total in totals]), axes=1)
                for name in totals[0]
            }
        )
        for client in np.flatnonzero(separable(took_part))
        if client not in shown
    }


def joined(before: View, after: View) -> View:
    """Return what two runs show of the rows that joined between them.

    Of each question that both asked of the same clients, the totals' difference is that of the rows that
    joined, less that of rows that left. Rows that left are those that joined from `after` to `before`.

    Args:
        before: what a party saw of a run.
        after: what it saw of a later run.

    Returns:
        A view of one client, the rows that joined, which any passive attack on totals can run on.
    """

    def of(view: View) -> dict[tuple[bytes, frozenset[str]], SumView]:
        return {
            (
                one.question.at(None).to_bytes(),
                frozenset(view.clients[i] for i in (one.contributors or one.cohort)),
            ): one
            for one in view.sums
            if one.question is not None and one.total is not None and not isinstance(one.question, Noised)
        }

    earlier, sums = of(before), list[SumView]()
    for key, one in of(after).items():
        if key in earlier and one.total is not None and (total := earlier[key].total) is not None:
            change = Statistics(**{name: one.total[name] - total[name] for name in total})
            sums.append(SumView(len(sums), one.purpose, one.question, (0,), (0,), change, {}, {}))
    return View(after.party, (), ("rows that joined",), tuple(sums), {})


def pooled(views: Sequence[View], maps: Sequence[LinearMap] = ()) -> View:
    """Join views of the same rows into one that any passive attack can run on.

    Args:
        views: views of one party, with the same colluders by name. The rows of a client must be the same in
            all runs that it was in. Clients are told apart by name.
        maps: of each view, how the rows became those of its run, so that the rows before are attacked; empty
            where they are the same in all runs.

    Returns:
        A view of all clients and all sums, with the last view's result. Clients stand in the order in which
        they first appear; sums are renumbered in the order of the views. The view holds the answers of single
        clients that follow from totals over changing clients.

    Raises:
        ArgumentError: there is no view, or they differ in party or colluders.
    """
    if not isinstance(views, Sequence) or not views or not all(isinstance(one, View) for one in views):
        raise ArgumentError(f"views must be a list of one View or more, got {views!r}.")
    views = [before(*each) for each in zip(views, maps, strict=True)] if maps else views
    for name, found in (
        ("party", {view.party for view in views}),
        ("colluding", {frozenset(view.clients[i] for i in view.colluding) for view in views}),
    ):
        if len(found) > 1:
            raise ArgumentError(f"views must agree on {name}, got {sorted(map(str, found))}.")
    names = tuple(dict.fromkeys(name for view in views for name in view.clients))
    position = {name: i for i, name in enumerate(names)}
    sums = [
        _moved(one, [position[name] for name in view.clients], view) for view in views for one in view.sums
    ]
    colluding = tuple(position[views[-1].clients[i]] for i in views[-1].colluding)
    every = tuple(replace(one, index=i) for i, one in enumerate(sums))
    return with_answers(replace(views[-1], clients=names, colluding=colluding, sums=every))


def _moved(one: SumView, to: Sequence[int], view: View) -> SumView:
    """Return a sum with the clients' new positions."""
    return replace(
        one,
        cohort=tuple(to[i] for i in one.cohort),
        contributors=tuple(to[i] for i in one.contributors),
        answers={to[i]: answer for i, answer in one.answers.items()},
        upload_bytes={to[i]: size for i, size in one.upload_bytes.items()},
    )


def taken_out(view: View, rows: FloatArray) -> View:
    """Return a view whose totals are over the others, where rows are known to be in all of them.

    Totals that do not add up over rows, and answers of single clients, are left out: nobody can tell what
    known rows did in them.

    Args:
        view: what a party saw, of one run or of several.
        rows: rows that took part, as they were fitted, float64 of shape (n_rows, n_features).

    Raises:
        ArgumentError: the rows have other columns than the run's.
    """
    known = ClientData(rows)

    def others(one: SumView) -> SumView:
        question, total = asked(one), one.total
        if question is None or total is None or not adds_up(one):
            return one if question is None else replace(one, total=None, answers={})
        if known.features.shape[1] != question.ranges.n_features:
            raise ArgumentError(
                f"the known rows have {known.features.shape[1]} columns, the run has "
                f"{question.ranges.n_features}."
            )
        own = question.answer(known.within(question.ranges)[0], np.random.default_rng(0))
        left = Statistics(**{name: total[name] - own[name] for name in total})
        return replace(one, total=left, answers={})

    return replace(view, sums=tuple(map(others, view.sums)))


_WIDER = 10.0
"""The box of rows is so many times that of the cells' means, unless it is given, so that it cuts no row."""


def view_from_rounds(
    centers: Sequence[npt.ArrayLike],
    counts: Sequence[npt.ArrayLike],
    sums: Sequence[npt.ArrayLike],
    *,
    clients: Sequence[str] = (),
    low: npt.ArrayLike | None = None,
    high: npt.ArrayLike | None = None,
) -> View:
    """Return what a server saw of a k-means that another program ran, for any passive attack.

    Each round counts and adds up the rows nearest to each center. A round that shows means instead has sums
    of counts times means. Runs of several fits are joined by `pooled`.

    Args:
        centers: of each round, those that the clients were sent, float64 of shape (n_clusters, n_features).
        counts: of each round, (n_clusters,) in total, or (n_clients, n_clusters) for single answers.
        sums: of each round, (n_clusters, n_features), or (n_clients, n_clusters, n_features).
        clients: names of the clients; needed where totals are shown, and their number is not.
        low: smallest value of each feature, (n_features,), if it is known; with `high`.
        high: largest value of each feature.

    Raises:
        ArgumentError: shapes do not fit together, counts are negative, or a value is not finite.
    """
    if not len(centers) or not len(centers) == len(counts) == len(sums):
        raise ArgumentError(
            f"each round has centers, counts and sums; got {len(centers)}, {len(counts)} and {len(sums)}."
        )
    tables = [
        tuple(as_numbers(name, one) for name, one in zip(("centers", "counts", "sums"), each, strict=True))
        for each in zip(centers, counts, sums, strict=True)
    ]
    n_clients = {one.shape[0] if one.ndim == 2 else 0 for _, one, _ in tables}
    for t, (center, count, total) in enumerate(tables):
        if (
            center.ndim != 2
            or count.shape[-1:] != center.shape[:1]
            or total.shape != (*count.shape, center.shape[1])
        ):
            raise ArgumentError(
                f"round {t} has centers {center.shape}, counts {count.shape} and sums {total.shape}; they "
                "need (k, d), (k,) or (clients, k), and the shape of the counts with d at the end."
            )
        if not all(np.isfinite(one).all() for one in (center, count, total)) or (count < 0).any():
            raise ArgumentError(
                f"centers, counts and sums of round {t} must be finite, and no count below 0."
            )
    if len(n_clients) > 1 or (max(n_clients) and clients and len(clients) != max(n_clients)):
        raise ArgumentError(
            f"all rounds need the same clients, got {sorted(n_clients)}, named {list(clients)}."
        )
    names = tuple(clients) or tuple(f"client {i}" for i in range(max(max(n_clients), 1)))
    ranges = _ranges(tables, low, high)
    return View(
        "server",
        (),
        names,
        tuple(_seen(t, len(names), ranges, *one) for t, one in enumerate(tables)),
        {"centers": tables[-1][0]},
    )


def _seen(
    index: int, n_clients: int, ranges: Ranges, centers: FloatArray, counts: FloatArray, sums: FloatArray
) -> SumView:
    question, everyone = LloydSums(ranges=ranges, centers=centers), tuple(range(n_clients))
    answers: Mapping[int, Statistics] = {}
    if counts.ndim == 2:
        answers = {i: Statistics(count=counts[i], sum=sums[i]) for i in everyone}
        counts, sums = counts.sum(axis=0), sums.sum(axis=0)
    total = Statistics(count=counts, sum=sums)
    return SumView(index, "round", question, everyone, everyone, total, answers, {})


def _ranges(
    tables: Sequence[tuple[FloatArray, ...]], low: npt.ArrayLike | None, high: npt.ArrayLike | None
) -> Ranges:
    most = int(max(np.rint(counts.sum(axis=-1)).max() for _, counts, _ in tables))
    if (low is None) is not (high is None):
        raise ArgumentError("low and high go together; pass both or none.", parameters=["low", "high"])
    if low is not None and high is not None:
        return Ranges(as_numbers("low", low), as_numbers("high", high), most)
    held = [(sums[counts > 0] / counts[counts > 0][:, None], centers) for centers, counts, sums in tables]
    points = np.concatenate([np.concatenate(one) for one in held])
    middle, width = points.mean(axis=0), np.maximum(np.ptp(points, axis=0), 1e-9 * (1 + np.abs(points).max()))
    return Ranges(middle - _WIDER * width, middle + _WIDER * width, most)
