"""What attacks on several runs, or with known rows, need: joined views, and rows that are left to find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from privfed.attacks import pooled
from privfed.attacks.base.preparation import Target
from privfed.attacks.evidence.mapped import LinearMap
from privfed.core.record.records import View
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.estimators.scaling import Scaling


def together(seen: Sequence[tuple[View, Target]], scalings: Sequence[Scaling | None]) -> tuple[View, Target]:
    """Join what attacks on several runs need: the party's views, and the targets, whose rows must agree.

    Args:
        seen: view and target of each run.
        scalings: how each run scaled the rows. Where these differ, the rows before are attacked.

    Raises:
        ArgumentError: views or rows differ.
    """
    if len(seen) == 1:
        return seen[0]
    maps = []
    if len(set(scalings)) > 1:
        zeros = np.zeros(seen[0][1].clients[0].shape[1])
        every = [of or Scaling.of("", zeros, zeros + 1.0) for of in scalings]
        maps = [LinearMap(1.0 / np.array(of.scale), of.scaled(zeros)) for of in every]
        seen = [(own, _before(of, by)) for (own, of), by in zip(seen, every, strict=True)]
    view, (first, target) = pooled([own for own, _ in seen], maps), seen[0]
    rows: dict[str, FloatArray] = {}
    for own, of in seen:
        for name, table in zip(own.clients, of.clients, strict=True):
            known = rows.setdefault(name, table)
            # Scaling and back leaves rounding.
            if known.shape != table.shape or not np.allclose(known, table, rtol=1e-9 * bool(maps), atol=0.0):
                raise ArgumentError(
                    f"the rows of client {name!r} differ between these runs: only runs of the same rows are "
                    "attacked together; for rows that joined between two runs use privfed.attacks.joined."
                )
    client = None if target.client is None else view.clients.index(first.clients[target.client])
    mus = [of.gdp_mu for _, of in seen]
    return view, replace(
        target,
        clients=[rows[name] for name in view.clients],
        labels=target.labels if all(own.clients == view.clients for own, _ in seen) else None,
        colluding=view.colluding,
        helping=view.colluding,
        shows_answers=any(client in one.answers for one in view.sums),
        client=client,
        # Gaussian noises of several runs compose as squares of mu.
        gdp_mu=None if None in mus else sum(mu**2 for mu in mus if mu is not None) ** 0.5,
    )


def _before(target: Target, scaling: Scaling) -> Target:
    """Return a target with all rows as they were before a run scaled them."""
    ends = None if target.ends is None else scaling.original(np.stack(target.ends))
    return replace(
        target,
        clients=[scaling.original(rows) for rows in target.clients],
        public=None if target.public is None else scaling.original(target.public),
        candidates=None if target.candidates is None else scaling.original(target.candidates),
        ends=None if ends is None else (ends[0], ends[1]),
    )


def without_rows(clients: Sequence[FloatArray], known: FloatArray) -> list[FloatArray]:
    """Return the clients' rows without known ones, each of which is taken out once.

    Raises:
        ArgumentError: a known row is not among them.
    """
    left = [np.ones(len(rows), dtype=np.bool_) for rows in clients]
    for number, row in enumerate(known, start=1):
        for rows, kept in zip(clients, left, strict=True):
            same = np.flatnonzero(kept & (rows == row).all(axis=1))
            if same.size:
                kept[same[0]] = False
                break
        else:
            raise ArgumentError(
                f"known row {number} is not among the clients' rows; pass rows that took part."
            )
    return [rows[kept] for rows, kept in zip(clients, left, strict=True)]
