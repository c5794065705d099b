"""Recovers exact rows from counts and sums of many rounds and restarts, without knowing any assignment.

The server knows the centroids that it sent, and so the cells of space. Each sum shows how many of the
target's rows lie in each cell, and their sum. If the counts of two cells differ by one, the difference of
their sums may be a row. Each such claim is scored, checked against all rounds and subtracted from all sums;
then the search repeats on what is left (`privfed.attacks.reconstruction.iterative_removal`). Centroids of a
client's own clusterings are turned into counts and sums in further cells
(`privfed.attacks.reconstruction.local_means`). docs/attacks/differencing.md explains it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from privfed.attacks.base.interface import PassiveAttack
from privfed.attacks.base.preparation import Aim, Prior, without_colluders
from privfed.attacks.base.reading import Reads, Shows, own_or_total
from privfed.attacks.base.results import NotRun, Points
from privfed.attacks.evidence.cells import (
    Evidence,
    Observation,
    answers_of,
    evidence_of,
    is_of_all,
    on_grid,
    read_in_cells,
)
from privfed.attacks.reconstruction.iterative_removal import removed
from privfed.attacks.reconstruction.local_means import (
    LocalClustering,
    clusterings_of,
    completed,
    observed,
    of_clustering,
)
from privfed.core.record.view import View
from privfed.core.values.domain import FloatArray

Reading = tuple[LocalClustering, tuple[FloatArray, ...]]
"""A client's own clustering, and the sets of means that it may have."""


class Differencing(PassiveAttack[Points]):
    """Recovers rows from the counts and sums of one client, or from a secure sum's totals.

    Args:
        client: position of the client whose answers are read; None reads totals, for rows of any client.
    """

    name: ClassVar[str] = "differencing"
    paper: ClassVar[str] = (
        "own; the assignment-aware bound is after TAR, arXiv:2511.07073; refutes arXiv:2312.07992"
    )
    adversary: ClassVar[str] = "passive server (honest but curious), alone or with colluding clients"
    view: ClassVar[str] = (
        "counts and sums (or centroids) of each round: a client's own, or totals; a client's own centroids"
    )
    algorithms: ClassVar[tuple[str, ...]] = (
        "dwf",
        "ewf",
        "lloyd",
        "minibatch",
        "fkm",
        "kfed",
        "fuzzy",
        "fedavg",
    )
    prior: ClassVar[str] = "none"
    defence: ClassVar[str] = (
        "differential privacy; with secure sums and one restart little follows from one fit, but fits "
        "add up; fewer rounds and several local steps only lower the yield"
    )
    aim: ClassVar[Aim] = Aim.SHOWN_CLIENT

    def __init__(self, client: int | None = None) -> None:
        self.client = client

    @property
    def reads(self) -> tuple[Reads, ...]:
        """Counts and sums in cells, without noise; for one client also its own centroids."""
        whose = "of all clients together" if self.client is None else f"of client {self.client} alone"
        found = read_in_cells(self.client, f"counts and sums in cells, without noise, {whose}", noised=False)
        shown = own_or_total(self.client)
        one = Reads(
            what="the number and the sum of one row",
            shown=shown,
            client=self.client,
            use=is_of_all,
            noised=False,
        )
        found = (*found, one)
        if self.client is None:
            return found
        what, shown = f"client {self.client}'s own centroids", Shows.ANSWERS
        own = Reads(what=what, shown=shown, client=self.client, use=of_clustering, noised=False)
        return (*found, own)

    def rows_of(self, view: View, rng: np.random.Generator) -> FloatArray:
        """Return the rows that are claimed from a view without colluders' answers, (n_claims, n_features)."""
        found = self._attack(view, Prior(), rng)
        if isinstance(found, NotRun):
            return np.empty((0, evidence_of(view, self.client).n_features))
        return found.points

    def _attack(self, view: View, prior: Prior, rng: np.random.Generator) -> Points | NotRun:
        if prior.colluders:
            view = without_colluders(view, prior.colluders)
        whole = evidence_of(view, self.client)
        whole = whole if prior.step is None else on_grid(whole, prior.step)
        # Cells after several local steps are only likely: they come last and are tested by known rows.
        likely = tuple(one for one in whole.observations if one.local)
        evidence = replace(whole, observations=tuple(one for one in whole.observations if not one.local))
        own = [] if self.client is None else readings(evidence, view, rng)
        if not (whole.observations or own):
            why = "it reads counts and sums in cells, or number and sum of one row: here is neither"
            return NotRun(attack=self.name, why=why)
        evidence, found = with_clusterings(evidence, removed(evidence, rng), own, rng)
        if likely:
            evidence = replace(evidence, observations=(*evidence.observations, *likely))
            found = removed(evidence, rng, found)
        points, confidence = found
        n_guesses = len(points) if np.isnan(evidence.n_rows) else round(evidence.n_rows)
        return Points(
            attack=self.name,
            queries=len(evidence.observations),
            points=points,
            client=self.client,
            confidence=confidence,
            evidence=evidence.partitions,
            without_access=prior.guesses(max(n_guesses, 1), rng),
        )


def with_clusterings(
    evidence: Evidence,
    found: tuple[FloatArray, FloatArray],
    left: list[Reading],
    rng: np.random.Generator,
) -> tuple[Evidence, tuple[FloatArray, FloatArray]]:
    """Add a client's own clusterings to the evidence, while the rows found solve further clusterings.

    Args:
        evidence: the evidence about one client.
        found: rows that were found in the evidence, and the confidence in each.
        left: the clusterings, from `readings`.
        rng: draws a projection by which equal vectors are found.

    Returns:
        The larger evidence, and the rows found in it with their confidences.
    """
    while left:
        next_sequence = min((one.sequence for one in evidence.observations), default=0) - 1
        solved: list[Observation] = []
        unsolved: list[Reading] = []
        for clustering, sets in left:
            sequence = next_sequence - len(solved)
            tried = (observed(clustering, means, found[0], evidence, sequence) for means in sets)
            one = next((observation for observation in tried if observation is not None), None)
            solved += [] if one is None else [one]
            unsolved += [(clustering, sets)] if one is None else []
        if not solved:
            break
        left, evidence = unsolved, replace(evidence, observations=(*evidence.observations, *solved))
        found = removed(evidence, rng, found)
    return evidence, found


def readings(evidence: Evidence, view: View, rng: np.random.Generator) -> list[Reading]:
    """Return the client's clusterings, each with the sets of means that it may have."""
    clusterings = clusterings_of(list(answers_of(view, evidence.client)))
    inner = [replace(evidence, observations=one.observations, scored=()) for one in clusterings]
    taken = [removed(one, rng)[0] for one in inner]
    offered = np.concatenate(taken) if taken else np.empty((0, evidence.n_features))
    return [
        (clustering, clustering.sent + completed(clustering, own, offered))
        for clustering, own in zip(clusterings, taken, strict=True)
    ]
