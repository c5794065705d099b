"""What the algorithms over models may ask, round by round, so that clients can check it without totals."""

from __future__ import annotations

from privfed.core.asking.phases import Among, Cycle, Form, Near, Phase, Phases, Same, Shape, Within
from privfed.core.roles.conversation import Setting
from privfed.deep.algorithms.plan import Plan
from privfed.deep.training.mixed import MixedUpdates
from privfed.deep.training.regrouping import Regrouping
from privfed.deep.training.rounds import MOST_CLUSTERS, AveragedUpdates, ClusterSizes, SketchedUpdates
from privfed.questions.gathered import Slots
from privfed.questions.ranges import range_phases

_OF_A_ROUND = ("models", "structure", "before")
"""What both questions of a round have in common."""


class RoundForms:
    """The forms of a run's questions.

    Args:
        plan: words of the run.
        setting: what is known before the first question.
    """

    def __init__(self, plan: Plan, setting: Setting) -> None:
        self._plan, self._setting = plan, setting
        self._n_parameters = plan.trainer(setting.n_features).n_parameters
        declared = plan.declared(setting)
        self._ranges: dict[str, object] = {} if declared is None else {"ranges": declared}
        self.found: Phases = range_phases(setting) if declared is None else ()

    def _models(self, number: int, n_clusters: int | None) -> Near | Shape:
        if number == 1:
            return Near((self._plan.starts(self._setting.n_features, n_clusters or 1),))
        return Shape(n_clusters or (1, MOST_CLUSTERS), self._n_parameters)

    def averaged(self, number: int, n_clusters: int, choice: str) -> Phase:
        """Return the one question of a round of FedAvg or IFCA."""
        return Phase(
            Form(
                AveragedUpdates,
                **self._ranges,
                training=self._plan.training(number),
                models=self._models(number, n_clusters),
                structure=0,
                choice=choice,
                metric="complete",
                numbered=True,
                before=Regrouping.none(),
                after=Regrouping.none(),
            )
        )

    def compared(
        self, number: int, metric: str, numbered: bool, landmarks: Regroupings, slots: int, averages: bool
    ) -> Cycle:
        """Return the questions of a round in which updates are compared."""
        before = Among((Regrouping.none(), landmarks.form(Within(1, max(1, number - 1)))))
        common = {
            **self._ranges,
            "training": self._plan.training(number),
            "models": Same("models", self._models(number, None)),
            "structure": Same("structure", Within(0, number - 1)),
            "choice": "kept",
            "metric": metric,
            "numbered": numbered,
            "before": Same("before", before),
        }
        words = {"size": landmarks.size, "seed": landmarks.seed, "decay": landmarks.decay}
        sketches = Form(SketchedUpdates, **common, **words)
        if slots:
            sketches = Form(Slots, **self._ranges, inner=sketches, slots=slots)
        after = Among((Regrouping.none(), landmarks.form(number)))
        sums = (Phase(Form(AveragedUpdates, **common, after=after)),) if averages else ()
        return Cycle((Phase(sketches), *sums), forgets=_OF_A_ROUND)

    def first_updates(self, metric: str, size: int, seed: int, slots: int) -> Phase:
        """Return the question for the first round's whole updates (R-DPCFL)."""
        form = Form(
            SketchedUpdates,
            **self._ranges,
            training=self._plan.training(1),
            models=self._models(1, 1),
            structure=0,
            choice="kept",
            metric=metric,
            numbered=True,
            before=Regrouping.none(),
            size=size,
            seed=seed,
        )
        return Phase(Form(Slots, **self._ranges, inner=form, slots=slots) if slots else form)

    def mixed(self, number: int, metric: str, models: Shape, mixture: Form) -> Phase:
        """Return the question of a later round, in which clients draw, choose or keep (R-DPCFL)."""
        none = Regrouping.none()
        return Phase(
            Form(
                MixedUpdates,
                **self._ranges,
                training=self._plan.training(number),
                models=models,
                structure=1,
                choice=Among(MixedUpdates.choices),
                metric=metric,
                numbered=True,
                before=none,
                after=none,
                mixture=Same("mixture", mixture),
            )
        )

    def sizes(self, landmarks: Regroupings) -> Phase:
        """Return the question for the sizes of the clusters at the end."""
        last = Among((Regrouping.none(), landmarks.form(Within(1, self._plan.rounds))))
        within = Within(0, self._plan.rounds)
        numbers = {"structure": within, "n_clusters": Within(1, MOST_CLUSTERS)}
        return Phase(Form(ClusterSizes, **self._ranges, before=last, **numbers))


class Regroupings:
    """The forms of steps from one clustering to the next.

    Args:
        size: numbers of a sketch.
        tag: numbers of a landmark.
        seed: of the projection.
        metric: how a client compares its update with landmarks.
        n_parameters: of the model.
        n_clients: most landmarks.
        rounds: of the run.
        decay: of the running means that are compared; 0 where updates are.
    """

    def __init__(
        self,
        *,
        size: int,
        tag: int,
        seed: int,
        metric: str,
        n_parameters: int,
        n_clients: int,
        rounds: int,
        decay: float,
    ) -> None:
        self.size, self.seed, self.decay = size, seed, decay
        self._tag, self._metric = tag, metric
        self._n_parameters, self._n_clients, self._rounds = n_parameters, n_clients, rounds

    def form(self, number: object) -> Form:
        """Return the form of a step that was decided in a round."""
        landmarks = (1, self._n_clients)
        return Form(
            Regrouping,
            before=Within(0, self._rounds),
            n_clusters=Within(1, MOST_CLUSTERS),
            round=number,
            models=Shape((1, MOST_CLUSTERS), self._n_parameters),
            landmarks=Shape(landmarks, self._tag),
            origins=Shape(landmarks),
            labels=Shape(landmarks),
            seed=self.seed,
            metric=self._metric,
        )
