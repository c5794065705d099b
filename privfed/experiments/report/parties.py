"""Describes in words what each party of a run saw, and under which assumptions."""

from __future__ import annotations

from privfed.core.agreed.assumptions import SIGHTS
from privfed.core.values.guarantee import Noise
from privfed.deep.estimators.base import FederatedModel
from privfed.experiments.report.summary import Row
from privfed.experiments.study.factories import estimator_class, secure_sum


def saw(row: Row) -> dict[str, str]:
    """Return for each party what it saw of a run of this configuration."""
    protocol = secure_sum(row.setup)
    learnt = "models" if issubclass(estimator_class(row.setup.estimator), FederatedModel) else "centroids"
    totals = SIGHTS[row.reveals].whole if row.reveals in SIGHTS else row.reveals
    if row.opens_to == "server":
        server = f"every question, and {totals}"
        clients = f"the questions, which hold the {learnt} of each round, and its own answers"
        if protocol.verified:
            clients += f"; besides, as totals are verified, {totals}"
    else:
        server = "who took part and the lengths of messages; no question, no total"
        clients = f"the questions and {totals}"
    assumed = str(protocol.assumptions)
    noise = row.setup.privacy
    if noise is not None:
        kind = "rehearsed noise: nobody is protected here" if noise.rehearsal else "claimed"
        whose = "it noised the totals itself," if noise.noise == Noise.SERVER else "answers carry noise"
        server += f"; {whose} for epsilon {noise.epsilon:g} of one {noise.unit} ({kind})"
        if protocol.reveals == "contributions":
            assumed = (
                "each client draws the whole noise by itself; its answers protect its rows by nothing else"
            )
    return {
        "the server": server,
        "a client": clients,
        "an observer": f"the final {learnt}",
        "assumed": assumed,
    }
