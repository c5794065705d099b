"""From an estimator's options to a training and a budget: checks, the model's name, the noise of DP-SGD."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import fields, replace
from importlib.util import find_spec
from typing import Any

import msgspec
import numpy as np

from privfed.core.values.guarantee import Mechanism, Neighbours, Noise, Unit
from privfed.deep.parameters import DPSGD
from privfed.deep.training.local import Training
from privfed.deep.training.trainer import MODELS
from privfed.errors import ArgumentError, BudgetError, DataError, PrivacyError
from privfed.estimators.declaring import parameters_of
from privfed.federation.clients import Clients
from privfed.privacy.claim import Privacy
from privfed.privacy.dp_sgd import epsilon_of_fit, noise_of_fit

SHOWN = 8
"""Most labels that an error lists."""


def model_name(model: Any, loss: Any, optimizer: Any) -> str:
    """Return the registered name of a model; a torch module is registered under one that follows from it.

    Raises:
        ArgumentError: no such model, a loss or optimizer that nothing uses, or torch is not installed.
    """
    if isinstance(model, str):
        for name, given in (("loss", loss), ("optimizer", optimizer)):
            if given is not None:
                raise ArgumentError(
                    f"{name} goes with a torch module; a registered model has its own.", parameters=[name]
                )
        MODELS.find(model)
        return model
    if find_spec("torch") is None or find_spec("opacus") is None:
        raise ArgumentError(
            f"model must be one of {', '.join(MODELS.names())}, or a torch module, with torch and opacus "
            f"installed (pip install 'privfed[deep]'); got {type(model).__name__}.",
            parameters=["model"],
        )
    from privfed.deep.training.torch_trainer import TorchTrainer

    return TorchTrainer(model, loss, optimizer).register()


def check_private(options: Mapping[str, Any], privacy: Privacy) -> None:
    """Check that a claim can be given.

    Raises:
        PrivacyError: there is no proof for it; the message names the alternative.
    """
    if options["weighting"] == "rows":
        raise PrivacyError('numbers of rows are not noised; under privacy use weighting="clients".')
    if privacy.noise == Noise.SERVER:
        raise PrivacyError('models are sent to clients, who train them; use noise="local" or "distributed".')
    if privacy.unit == Unit.CLIENT:
        return
    if privacy.unit == Unit.USER:
        raise PrivacyError(
            "DP-SGD draws rows by chance, and a user with several rows is in several batches: no bound is "
            'proven. Use unit="client"; or unit="record" for a table with one row a user.'
        )
    if privacy.neighbours != Neighbours.ADD_REMOVE:
        raise PrivacyError(
            'DP-SGD, whose batches are by chance, is for records added or removed: neighbours="add-remove".'
        )
    if privacy.noise != Noise.LOCAL or privacy.mechanism != Mechanism.GAUSSIAN:
        raise PrivacyError(
            'at unit "record" each client trains by DP-SGD, with noise of its own: noise="local" and '
            'mechanism="gaussian"; shared noise is for unit="client".'
        )
    if options["rows_per_client"] is None:
        raise PrivacyError(
            "DP-SGD divides sums of gradients by a public number of rows: pass rows_per_client, about what a "
            "client holds, known without looking.",
            parameters=["rows_per_client"],
        )


def check_labels(clients: Clients, n_classes: int) -> None:
    """Check that labels are classes; where it would tell of rows, those of other labels are left out.

    Raises:
        DataError: some are not; the message names the client, the labels, and of how many rows they are.
    """
    for name, data in zip(clients.names, clients.here, strict=True):
        labels = np.zeros(0) if data.labels is None else data.labels
        odd = labels[(labels < 0) | (labels >= n_classes)]
        if odd.size:
            first = np.unique(odd)
            listed = ", ".join(map(str, first[:SHOWN].tolist())) + ", ..." * (len(first) > SHOWN)
            raise DataError(
                f"client {name} has {odd.size} rows whose labels are none of the classes 0 to "
                f"{n_classes - 1}, but {listed}; pass n_classes= (by default 2), encode the labels, "
                "or leave these rows out."
            )


def named(kind: type[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a dataclass has fields for, of the same names."""
    return {one.name: options[one.name] for one in fields(kind) if one.name in options}


def training_of(options: Mapping[str, Any], seed: int, sampled: bool) -> Training:
    """Return the training of a run, without noise: it has the estimator's parameters under the same names."""
    own = {name: one for name, one in named(Training, options).items() if name not in parameters_of(DPSGD)}
    own["model"] = model_name(options["model"], options["loss"], options["optimizer"])
    found = Training(**own, seed=seed, sampled=sampled)
    # Its rate in the last round has the bounds of the first one's, before anything is paid.
    replace(found, round=found.rounds)
    return found


def noised_training_of(options: Mapping[str, Any], privacy: Privacy, seed: int, sampled: bool) -> Training:
    """Return the training of a run by DP-SGD, with the least noise that the claim allows, or the given one.

    Raises:
        BudgetError: the given noise is too little for all rounds; nothing is asked.
        PrivacyError: no noise is enough.
    """
    plain, multiplier = training_of(options, seed, sampled), options["noise_multiplier"]
    own = {name: options[name] for name in parameters_of(DPSGD)}
    own["noise_multiplier"] = 1.0 if multiplier is None else multiplier
    own |= {name: float(value) for name, value in own.items() if name != "rows_per_client"}
    training = replace(plain, **own, trainings=math.ceil(plain.rounds / (1.0 - privacy.spare)))
    steps = training.sampled_steps
    if multiplier is None:
        noise = noise_of_fit(privacy.epsilon, privacy.delta, steps)
        paid = noise if privacy.paid_by is None else privacy.paid_by.noise(noise, steps)
        return replace(training, noise_multiplier=paid)
    allowed = bisect_right(
        range(1, steps.trainings + 1),
        privacy.epsilon,
        key=lambda n: epsilon_of_fit(msgspec.structs.replace(steps, trainings=n), privacy.delta),
    )
    if allowed < steps.trainings:
        kept = f", of which {steps.trainings - training.rounds} are spare" if privacy.spare else ""
        raise BudgetError(
            f"noise_multiplier={multiplier:g} pays for {allowed} of {steps.trainings} rounds{kept}, under "
            f"epsilon={privacy.epsilon:g} and delta={privacy.delta:g}; nothing was trained. Take fewer "
            "rounds, more noise, or noise_multiplier=None for as much as is needed."
        )
    return training
