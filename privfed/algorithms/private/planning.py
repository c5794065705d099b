"""What noise a fit under differential privacy will have, from public numbers alone: nothing is asked.

It goes through the shares of the budget as `privfed.algorithms.private.kmeans` does, for clusters of equal
size whose centers fill the domain. Others have other noise.
"""

from __future__ import annotations

from math import inf, sqrt

import msgspec
import numpy as np

from privfed.algorithms.private.coreset import HASH_SHARE, count_share
from privfed.algorithms.private.grids import GRID_SHARE
from privfed.algorithms.private.kmeans import begun, rounds_for
from privfed.algorithms.private.noised_rounds import DISTANCE_SHARE, wanted_radius
from privfed.algorithms.private.points import Coreset
from privfed.algorithms.private.scale import SHARES, Scale, chi_ratio, frame_of, replaces_records
from privfed.core.roles.conversation import Setting
from privfed.core.values.guarantee import Unit
from privfed.core.values.numbers import check_number, check_whole
from privfed.errors import PrivacyError
from privfed.privacy.claim import Privacy
from privfed.privacy.plan import Plan
from privfed.privacy.pricing import agreed_budget
from privfed.questions.cells import GRID_FEATURES

STANDS_OUT = 8.0
"""A cluster stands out by so many standard deviations of noise, in two ways. Its rows are so many of the
noise in its size. Half the distance to the next center is so many of the noise in a coordinate of its
mean."""

AVERAGED = 1.0 / 3.0
"""Share of the rounds whose noise averages out; docs/measurements/dp_kmeans.md, "Planned and measured", has
the fits."""

LEAST, MOST = 2.0**-10, 2.0**7
"""Least and most epsilon that is looked at."""


def planned(
    privacy: Privacy, n_rows: int, n_clusters: int, n_features: int, distance: float | None, copies: int
) -> Plan:
    """Return the plan of a fit; see `Privacy.plan`."""
    for name, value in (("n_rows", n_rows), ("n_clusters", n_clusters), ("n_features", n_features)):
        check_whole(name, value, 1)
    check_whole("copies", copies, 1)
    check_number("distance", distance, "(0, inf)", or_none=True)
    if privacy.unit == Unit.CLIENT:
        raise PrivacyError(
            'a plan is for unit="record" or "user": what a client adds to a sum depends on how its rows '
            "spread, which no public number says. Fit made-up rows of your clients' sizes instead, with "
            "noise_seed=, and read their intervals_."
        )

    def at(epsilon: float) -> tuple[Plan, bool]:
        return _at(privacy, epsilon, n_rows, n_clusters, n_features, distance, copies)

    low, high = LEAST, MOST
    while at(high)[1] and high > low * 1.01:
        middle = sqrt(low * high)
        low, high = (low, middle) if at(middle)[1] else (middle, high)
    plan, stands_out = at(privacy.epsilon)
    least = high if at(high)[1] else inf
    return Plan(plan.size_noise, plan.mean_noise, plan.rounds, plan.cost_ratio if stands_out else None, least)


def _at(
    privacy: Privacy, epsilon: float, n_rows: int, k: int, d: int, distance: float | None, copies: int
) -> tuple[Plan, bool]:
    """Return the plan at an epsilon, whose least epsilon is not known yet, and whether clusters stand out."""
    terms = privacy.terms()
    budget = agreed_budget(terms.mechanism, terms.noise, epsilon, privacy.delta, terms.rows_apart)
    terms = msgspec.structs.replace(terms, budget=budget)
    setting = Setting(("",), d, privacy.domain, privacy=terms)
    frame = frame_of(setting)
    # Centers of clusters that fill the domain are so far apart; their rows reach half as far.
    apart = 2.0 * frame.unit * k ** (-1.0 / d)
    distance = distance or 0.5 * apart * sqrt(d / 3.0)
    spent = sum(SHARES.values()) + (GRID_SHARE if d <= GRID_FEATURES else HASH_SHARE)
    scale = Scale(
        frame=frame,
        budget=budget * (1.0 - terms.spare) / copies,
        replaced=replaces_records(setting),
        n_rows=float(n_rows),
        center=frame.middle,
        radius=min(chi_ratio(d) * max(distance, 0.5 * frame.radius), frame.radius),
        spent=spent,
    )
    nothing = Coreset(np.zeros((k, d)), np.ones(k), 0.0, single=True, hashed=False, spent=0.0)
    rounds = rounds_for(begun(scale, nothing, k), k, 1.0 - spent)
    share, counts, each = (1.0 - spent) / rounds, count_share(d), n_rows / k
    weight = share * (1.0 - DISTANCE_SHARE)
    size = scale.count_noise(weight, counts)
    mean = scale.noise(weight, counts) * wanted_radius(scale, distance, share, k) / sqrt(d) / each
    return Plan(size, mean, rounds, 1.0 + d * (mean / distance) ** 2 / max(1.0, AVERAGED * rounds), inf), min(
        each / size, apart / 2.0 / mean
    ) >= STANDS_OUT
