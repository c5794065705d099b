"""What all estimators of models share: their options, from `fit` through a federation to fitted models."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from privfed.core.asking.question import ClientData, parts_of, question_from_bytes
from privfed.core.roles.conversation import Algorithm
from privfed.core.roles.engine import client_generator
from privfed.core.roles.secure_sum import SecureSum
from privfed.core.stored.encoding import Array, asdict
from privfed.core.values.domain import Box, Domain, FloatArray
from privfed.core.values.guarantee import Unit
from privfed.deep.algorithms.plan import ModelsOutcome, as_table, from_table
from privfed.deep.estimators.predicting import Predicting, kind_of
from privfed.deep.estimators.training_plan import (
    check_labels,
    check_private,
    noised_training_of,
    training_of,
)
from privfed.deep.training.dp_sgd import is_foreign
from privfed.deep.training.held_out import Comparison
from privfed.deep.training.local import TIMES, Training
from privfed.deep.training.memory import memory_of
from privfed.deep.training.probing import check_repeats, private_trainer_of
from privfed.deep.training.regrouping import cheapest
from privfed.deep.training.rounds import ClusterSizes, Round
from privfed.deep.training.trainer import MODELS
from privfed.errors import ArgumentError, ResumeError, warn
from privfed.estimators.declaring import parameters
from privfed.estimators.fitting import check_declared, described, keep_columns
from privfed.estimators.registry import stored_name
from privfed.estimators.saving import NOT_PART_OF_THE_AGREEMENT, Arrays, check_fitted, plain_params
from privfed.federation.clients import Clients, gather, gathered
from privfed.federation.driver import Federation, Watcher
from privfed.federation.opening import claim_of, open_federation
from privfed.federation.request import FederationRequest, as_agreed, cohort_rule, protocol_of, seed_of_fit
from privfed.privacy.claim import Privacy
from privfed.privacy.derived import derived
from privfed.protocols.slotted import Slotted

LAST_ROUND = 2.0**20
"""Latest time of a row."""

PASSES = 16
"""Of fine-tuning at most, where held-out rows tell how many."""

KEPT = ("model", "n_classes", "timed", "rounds")
"""What files hold of a training."""


@parameters
class FederatedModel(Predicting):
    """Base of the estimators of models. Subclasses name their algorithm, and may add parameters of their own.

    Attributes:
        models_: parameters of each cluster's model, float64 of shape (n_clusters, n_parameters).
        history_: models at the start and after each round; the number of clusters may change.
        labels_: each client's own cluster, as the client knows it; -1 for none. With "slotted" updates the
            server does not know it. Only of clients in this process.
        labels_history_: the same after each round, integers of shape (rounds, n_clients).
        parents_: cluster that each one was split from, int64 of shape (n_clusters,); -1 for others.
        regrouped_: what each round decided about clusters, where the algorithm decides anything.
        comparison_: whether clusters are worth it, by clients' held-out rows: `summary` has accuracies, and
            `best` the way to take (`privfed.deep.training.held_out.Comparison`); None where nobody asked.
        n_iter_: rounds.
    """

    trains = True

    @abstractmethod
    def make_algorithm(self, training: Training) -> Algorithm[ModelsOutcome]:
        """Check the estimator's own options and return the algorithm.

        Raises:
            ArgumentError: a word is out of its bounds.
        """

    @property
    def slotted_sums(self) -> int:
        """In how many sums of a fit slots show what clients send; 0 for none."""
        return 0

    def _secure_sum(self) -> SecureSum:
        """Return the protocol of the sums; one by name is given the slots that are needed."""
        protocol = protocol_of(self.protocol)
        named = isinstance(self.protocol, str) and not isinstance(protocol, Slotted)
        return Slotted(protocol, sums=self.slotted_sums) if named and self.slotted_sums else protocol

    @property
    def _usual_weighting(self) -> str:
        """The weighting where none is given."""
        return "clients"

    @property
    def _options(self) -> dict[str, Any]:
        """All parameters by name, with the weighting that None stands for."""
        given = self.get_params(deep=False)
        # Numbers of numpy, such as y.max() + 1, are taken as Python's.
        options = {name: one.item() if isinstance(one, np.generic) else one for name, one in given.items()}
        return options | {"weighting": self._usual_weighting if self.weighting is None else self.weighting}

    @property
    def _by_dp_sgd(self) -> Privacy | None:
        """The privacy of a fit by DP-SGD; None for all others."""
        return self.privacy if self.privacy is not None and self.privacy.unit != Unit.CLIENT else None

    def fit(self, X: Any = None, y: Any = None, client_names: Iterable[Any] | None = None) -> Self:
        """Train on the data of several clients.

        Args:
            X: a list of tables of shape (n_i, n_columns), one a client; None for an engine's own clients.
            y: a list of arrays of integer labels, one a client.
            client_names: of the clients; None to call them 0, 1, ...
        """
        return self.fit_clients(self._gather(X, y, client_names))

    def resume(self, X: Any = None, y: Any = None, client_names: Iterable[Any] | None = None) -> Self:
        """Finish the run in `run_dir` with the same clients; each trains again what it did before, to itself.

        By DP-SGD none does, as that would be another release: clients have forgotten their clusters, join the
        nearest again, and pay for what they train out of `Privacy(spare=...)`. Each keeps in the run's folder
        what it has spent: no more trainings leave it than were agreed, however often a run is killed.
        Clients on machines of their own (over Flower) remember all of it, and train nothing again.

        Raises:
            ResumeError: the run is another one, or by DP-SGD and nothing was kept for resuming it.
        """
        return self.fit_clients(self._gather(X, y, client_names), resume=True)

    def join(self, X: npt.ArrayLike, y: npt.ArrayLike) -> int:
        """Return the cluster of a client that took no part in the fit, for `predict`; also after loading.

        DCFL: it trains the average of all models for a round, and takes the cluster whose model is nearest
        to where that went (equation 6). CFL: it trains the model of each split from the first one on, and
        follows the half whose mean update is nearer by the cosine. IFCA: the lowest loss on its rows.

        Reveals: nothing is sent; it runs where the rows are. The number follows from these rows without
        noise, also after a private fit: no claim covers it, so tell it only to who may know of the rows.

        Args:
            X: the client's features, float64 of shape (n_rows, n_features), without times.
            y: their labels, integers of shape (n_rows,).

        Raises:
            NotFittedError: it is not fitted.
            ArgumentError: the rows have other features; or the torch module is missing, or after loading
                its loss or optimizer are not those of the fit.
            DataError: there are no rows, or values, labels or (without privacy) rows' places are not allowed.
        """
        client, training = self._newcomer(X, y)
        if len(self.models_) == 1:
            return 0
        generator = np.random.default_rng(0)  # Plain SGD draws nothing from it.
        found = self._joined(lambda start: training.update(client, start, generator))
        return cheapest(training, self.models_, client) if found is None else found

    def tuned(self, X: npt.ArrayLike, y: npt.ArrayLike, cluster: int | None = None) -> FloatArray:
        """Return a client's own model, float64 of shape (n_parameters,), for `classify`; also after loading.

        It is a cluster's model after `fine_tune` passes over the client's rows. Where clusters were compared
        (`comparison_`), it is what held-out rows found best: so many passes, or what the client trains alone.

        Reveals: nothing is sent; it runs where the rows are. It follows from these rows without noise, also
        after a private fit: no claim covers it.

        Args:
            X: as of `join`, with the same errors.
            y: their labels.
            cluster: whose model, as of `predict`.
        """
        client, training = self._newcomer(X, y)
        way, passes = "", self.fine_tune or 0
        if self.comparison_ is not None:
            way, passes = self.comparison_.best
        alone = way == "alone"
        start = self.history_[0][0] if alone else self._model(cluster)
        numbers = range(1, training.rounds + 1) if alone else passes * [training.rounds]
        return training.tuned(client, start, np.random.default_rng(0), numbers)

    def _newcomer(self, X: npt.ArrayLike, y: npt.ArrayLike) -> tuple[ClientData, Training]:
        """Return a client with these rows, and how it trains."""
        check_fitted(self, "models_")
        self._check_trains_alike()
        clients = gather(
            [self._rows(X)], y=[y], names=["newcomer"], domain=None if self.privacy else self.domain
        )
        check_labels(clients, self.n_classes)
        (client,) = clients.here
        if self.privacy is not None:
            client = client.inside(self.privacy.domain)  # As in a private fit.
        return client, self._newcomers_training(client.n_rows)

    def _joined(self, update: Callable[[FloatArray], FloatArray]) -> int | None:
        """Return a newcomer's cluster by its updates; None for that of the lowest loss on its rows."""
        return None

    def _newcomers_training(self, n_rows: int) -> Training:
        """Return the last round's training, without noise; batches are of the fit's size in the mean."""
        options = self._options | {"model": self._registered(), "loss": None, "optimizer": None}
        if self._by_dp_sgd is not None:
            options["batch_size"] = max(1, round(self.sample_rate * n_rows))
        training = training_of(options, 0, False).at(self._training_.rounds)
        return replace(training, timed=False, n_classes=self._training_.n_classes)

    def _check(self) -> None:
        check_declared(self)
        if self.privacy is not None:
            check_private(self._options, self.privacy)

    def _gather(self, X: Any, y: Any, names: Iterable[Any] | None) -> Clients:
        self._check()
        private = self.privacy is not None
        clients = gathered(self.engine, X, None, y, names=names, private=private)
        if clients.data is not None and any(one.labels is None for one in clients.data):
            raise ArgumentError(
                "training needs labels: pass y and X as lists, an array of integers and a table for each "
                "client, or ClientTables with labels."
            )
        if clients.data is None and not isinstance(self.model, str):
            raise ArgumentError(
                f"model={type(self.model).__name__} is code of this process, and the engine's clients are "
                "elsewhere: code does not travel. Give it a name in a module that all of them have "
                "(privfed.deep.MODELS.add(name, factory)), which each node's owner names in its node.toml "
                '(modules = ["..."]), and pass model=name.'
            )
        if clients.data is not None and not private:
            self._planned(clients.n_features, 0)  # Its errors come before those of rows.
            check_labels(clients, self.n_classes)
        domain = self._declared(clients.n_features)
        if domain is None or clients.data is None:
            return clients
        if not private:
            return gather(X, None, y, names=names, domain=domain)
        # Each client moves its own rows into the domain: that rows lay outside is not told.
        return replace(clients, data=tuple(data.inside(domain) for data in clients.data))

    def _declared(self, n_columns: int) -> Domain | None:
        """Return the declared domain, of all columns: rows' times lie up to `LAST_ROUND`."""
        domain = self.domain if self.privacy is None else self.privacy.domain
        if domain is None or not self.timed:
            return domain
        if not isinstance(domain, Box):
            raise ArgumentError("rows with times need a Box for a domain, got a Ball.")
        low, high = domain.bounds(n_columns - TIMES)
        return Box(np.append(low, [0.0, 0.0]), np.append(high, [LAST_ROUND, LAST_ROUND]), domain.max_rows)

    def fit_clients(self, clients: Clients, *, resume: bool = False, watch: Watcher | None = None) -> Self:
        """Train on named clients; `watch` is called after every sum with its index, question and total."""
        clients = as_agreed(clients, self.run_dir) if resume else clients
        seed = seed_of_fit(self.random_state, self.privacy, self.run_dir, resume)
        training, algorithm = self._planned(clients.n_features, seed)
        request = self._request(clients, algorithm, training, seed)
        self.federation_: Federation = open_federation(replace(request, resume=resume, watch=watch))
        private, members = self._by_dp_sgd, None if self.engine is None else self.engine.members
        remember = members is not None and members.remember
        if resume and private is None:
            self._train_again(clients, seed)
        elif resume and private and not (private.spare or remember or self.federation_.finished):
            raise ResumeError(
                "a run by DP-SGD without spare trainings cannot be resumed: clients would train again with "
                "fresh noise, which nothing pays for. Begin another one in another folder, with "
                "Privacy(spare=...) if it may be stopped: each resuming takes up to two trainings of it."
            )
        self._keep(self.federation_.run(algorithm), training, clients)
        self._save_in(self.run_dir)
        return self

    def _train_again(self, clients: Clients, seed: int) -> None:
        """Have each client in this process answer the recorded questions again, to itself: nothing is sent.

        Training repeats to the last bit, so that a client remembers what it did before.
        """
        data = self.federation_.data or ()
        for index, (asked, total) in enumerate(self.federation_.transcript.totals() if data else ()):
            for question in parts_of(question_from_bytes(asked.question)):
                if isinstance(question, Round | ClusterSizes):
                    for i in total.contributors:
                        own, _ = data[i].within(question.ranges)
                        question.answer(own, client_generator(seed, clients.names[i], index))

    def _planned(self, n_columns: int, seed: int) -> tuple[Training, Algorithm[ModelsOutcome]]:
        """Check all options, and the model on nobody's rows; return the training and the algorithm."""
        self._check()
        training = self._training(seed)
        if training.private:
            # In each fit: in a notebook a function that the model calls may be another one by now.
            private_trainer_of.cache_clear()
            training.trainer(n_columns)  # It checks that each row has a gradient of its own.
        else:
            check_repeats(training.model, n_columns - TIMES * training.timed, training.n_classes)
        return training, self.make_algorithm(training)

    def request(self, clients: Clients, seed: int) -> FederationRequest:
        """Return what a fit would ask the federation builder for; nothing is asked.

        Raises:
            ArgumentError: a word is out of its bounds.
            PrivacyError: there is no proof for the claim.
        """
        training, algorithm = self._planned(clients.n_features, seed)
        return self._request(clients, algorithm, training, seed)

    def resolved(self) -> str:
        """Return the algorithm that ran, as text; equal texts under equal settings are equal computations."""
        return described(self.make_algorithm(self._training_))

    def _training(self, seed: int) -> Training:
        options = self._options
        if self._by_dp_sgd is None:
            return training_of(options, seed, self._sampled)
        return noised_training_of(options, self._by_dp_sgd, seed, self._sampled)

    def _request(
        self,
        clients: Clients,
        algorithm: Algorithm[ModelsOutcome],
        training: Training,
        seed: int,
    ) -> FederationRequest:
        """Return what a fit asks the federation builder for.

        The description, for the agreement, is the algorithm and its options as canonical text.
        """
        options = {k: v for k, v in plain_params(self).items() if k not in NOT_PART_OF_THE_AGREEMENT}
        options |= {"algorithm": stored_name(type(self)), "n_features": clients.n_features}
        options |= {"model": training.model}
        domain = self._declared(clients.n_features)
        privacy = self.privacy
        if privacy is not None and domain is not None and domain is not privacy.domain:
            privacy = derived(privacy, domain=domain)
        # DP-SGD noises what a client trains, before any sum: sums are of what is private already.
        steps = None if self._by_dp_sgd is None else training.sampled_steps
        return FederationRequest(
            clients=clients,
            description=json.dumps(options, sort_keys=True),
            max_sums=algorithm.max_sums,
            protocol=self._secure_sum(),
            algorithm=algorithm,
            rule=cohort_rule(len(clients.names), self.clients_per_round, self.cohorts, seed),
            seed=seed,
            domain=domain if privacy is None else None,
            privacy=privacy,
            steps=steps,
            engine=self.engine,
            policy=self.policy,
            run_dir=self.run_dir,
        )

    def _keep(self, outcome: ModelsOutcome, training: Training, clients: Clients) -> None:
        if not self.federation_.finished:
            self.federation_.transcript.ended({"models": Array.from_numpy(outcome.models)})
        self.transcript_ = self.federation_.transcript
        keep_columns(self, self.transcript_.configuration.columns)
        self.models_ = np.array(outcome.models)
        self.history_ = [np.array(models) for models in outcome.history]
        self.regrouped_ = list(outcome.regrouped)
        self.parents_ = np.array(outcome.parents or (-1,) * len(outcome.models), dtype=np.int64)
        self.comparison_ = outcome.comparison
        if outcome.comparison is not None and outcome.comparison.loses:
            warn(f"{outcome.comparison.found} tuned(X, y) makes a client's own model so.")
        elif outcome.comparison is None and training.held_until:
            warn("clusters were not compared: no client has the five rows of which it would hold one out.")
        self.n_iter_, self.n_features_in_ = training.rounds, clients.n_features
        self._training_ = training
        trainer = training.trainer(clients.n_features)
        self._kind_, self._trained_by_ = kind_of(trainer)
        claim = claim_of(self.federation_, self._secure_sum())
        own = "; gradients of rows are computed by a trainer of your own" if is_foreign(trainer) else ""
        self.privacy_claim_ = claim and replace(claim, composed=claim.composed + own)
        self._remember(outcome, training.rounds)
        self._warn(outcome, training)

    def _remember(self, outcome: ModelsOutcome, rounds: int) -> None:
        """Keep what clients in this process know of their own clusters."""
        data = self.federation_.data
        if data is None:
            self.__dict__.pop("labels_", None)
            self.__dict__.pop("labels_history_", None)
            return
        memories = [memory_of(one) for one in data]
        known = [[one.labels.get(t, -1) for one in memories] for t in range(1, rounds + 1)]
        # One model may have taken the place of a round's clusters after it.
        self.labels_history_ = np.minimum(known, [[len(one) - 1] for one in outcome.history[1:]])
        current = [one.label if one.structure == outcome.structure else -1 for one in memories]
        self.labels_ = np.array(current, dtype=np.int64)

    def _warn(self, outcome: ModelsOutcome, training: Training) -> None:
        """Without privacy warn of what went wrong: by totals, and by what clients in this process know."""
        if self.privacy is None and np.array_equal(outcome.history[-1], outcome.history[-2]):
            warn("the last round moved no model: training did not stay finite anywhere. Lower learning_rate.")
        data = () if self.privacy is not None else self.federation_.data or ()
        updates = [one for data in data if (one := memory_of(data).update) is not None]
        longest = training.max_update_norm * (1.0 - 1e-9)
        if clipped := sum(bool(np.linalg.norm(one) >= longest) for one in updates):
            warn(
                f"the last updates of {clipped} of {len(updates)} clients were clipped to max_update_norm="
                f"{training.max_update_norm:g}: training may diverge. Lower learning_rate, or raise it."
            )
        if data and (left := int((self.labels_ < 0).sum())):
            warn(
                f"{left} of {len(data)} clients are in no cluster (-1 in labels_), as they were in no round "
                "since these were found. join(X, y) gives a client its cluster."
            )

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy holds; under differential privacy nothing that clients know of their rows."""
        state = super().__getstate__()
        return {
            name: value for name, value in state.items() if "labels_" in state or name != "labels_history_"
        }

    def _stored(self) -> tuple[dict[str, FloatArray], dict[str, Any]] | None:
        if not hasattr(self, "models_"):
            return None
        facts = {name: one for name, one in asdict(self._training_).items() if name in KEPT}
        named = {"module": self._kind_, "trained_by": self._trained_by_}
        arrays = {
            "models": self.models_,
            "history": np.concatenate(self.history_),
            "sizes": np.array([len(models) for models in self.history_], dtype=np.float64),
            "regrouped": as_table(self.regrouped_),
            "parents": self.parents_.astype(np.float64),
            "compared": np.zeros((0, 0)) if self.comparison_ is None else self.comparison_.accuracy,
        }
        return arrays, {**facts, "n_features": self.n_features_in_, **named}

    def _restore(self, arrays: Arrays, facts: dict[str, Any]) -> None:
        sizes, models = arrays["sizes"].astype(np.intp), arrays["models"]
        history = np.split(arrays["history"], np.cumsum(sizes)[:-1])
        if not len(models) or [len(one) for one in history] != sizes.tolist():
            raise ValueError("the sizes do not add up")
        if not np.array_equal(history[-1], models):
            raise ValueError("the history does not end with the models")
        options = {name: facts[name] for name in KEPT}
        self._kind_, self._trained_by_ = (str(facts.get(name, "")) for name in ("module", "trained_by"))
        if not isinstance(options["model"], str):
            raise ValueError("no name of a model")
        self._training_ = Training(**options)
        self.models_, self.history_ = models, history
        self.regrouped_ = from_table(arrays["regrouped"])
        self.parents_ = arrays["parents"].astype(np.int64)
        self.comparison_ = Comparison(arrays["compared"]) if arrays["compared"].size else None
        if self.parents_.shape != (len(models),):
            raise ValueError("not one parent for each cluster")
        self.n_iter_, self.n_features_in_ = self._training_.rounds, int(facts["n_features"])
        if self._training_.model in MODELS:
            self._trainer()
