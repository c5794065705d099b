"""Federations of estimators whose fit is a program by itself: scalers and summaries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from privfed.core.federation import Federation
from privfed.core.roles.conversation import Algorithm
from privfed.estimators.parameters.shared import Surroundings
from privfed.federation.builder import FederationRequest, open_federation, seed_from
from privfed.federation.clients import Clients


def whole_program(
    estimator: Surroundings, clients: Clients, algorithm: Algorithm[Any], agreed: Mapping[str, Any]
) -> Federation:
    """Open a federation that runs `algorithm` where and how the estimator's parameters say.

    Args:
        estimator: the parameters.
        clients: those who take part.
        algorithm: what is run.
        agreed: what the agreement's description says, as JSON types.

    Raises:
        ArgumentError: see `open_federation`.
    """
    return open_federation(
        FederationRequest(
            clients=clients,
            description=json.dumps(dict(agreed)),
            max_sums=algorithm.max_sums,
            protocol=estimator.protocol,
            algorithm=algorithm,
            seed=seed_from(estimator.random_state),
            domain=estimator.domain,
            privacy=estimator.privacy,
            engine=estimator.engine,
            policy=estimator.policy,
            run_dir=estimator.run_dir,
        )
    )
