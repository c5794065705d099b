"""All that a part of your own imports. docs/extending.md shows one of each kind; `privfed.testing` checks it.

A question and its answer
    Question: base of what clients are asked; `register` gives its class a name on the wire.
    AdditiveOver: whether answers add up over records or over clients only.
    Declaration: states which entries count rows, and which centers and cells a question is about.
    Entry, StatisticsSpec: name, shape, range and resolution of the arrays of an answer.
    Statistics: the arrays of an answer or of a total, by name.
    Ranges: range of each feature, and a bound on a client's rows. Rows are clipped to them.
    check_centers: refuses centers that are not finite or have a wrong shape.
    LloydSums, Inertia: privfed's own questions about centers: counts and sums, and squared distances.
    RecordBounded, Contribution, counted: a question with a bound on one record's contribution, what each row
        adds, and the bound of a count.

An algorithm over sums
    RoundsAlgorithm: base of algorithms of one sum a round. Write `ask` and `move`.
    Restarts, Restart: base of other algorithms that begin with ranges and a start. Write `restart`.
    ClusteringOutcome: what a run returns.
    Ask, Total: what an algorithm yields, and what it is sent.
    locate, range_phases: the sum that finds the ranges, and what it asks; both bases do this by themselves.
    Setting: the public facts: clients, number of features, domain, guarantee.
    Form, Phase, Cycle, Shape, Same, Within: declare which questions a run may ask, in which order.
    register_algorithm: gives its class a name in agreements.

An estimator
    RoundsClusterer: base of estimators of a `RoundsAlgorithm`. Name its class as `algorithm`.
    FederatedClusterer: base of all clustering estimators. Write `make_algorithm`.
    parameter, parameters: declare parameters with default and text.
    check_init, check_number, check_whole: checks of parameters.

A secure sum
    Terms, Assumptions, Stage, COLLECT: what a sum declares of itself.
    Exchange, gather: requests to clients, and their replies.
    Message, Refusal, Codec, encode, decode: messages and stored states as bytes.
    admit, answer, refusal_code: how a client checks a question, answers it, and codes its refusal.
    grid_of, Masker: integers modulo 2**64 for answers, and streams that are added to them.
    expand, bound_prefix, with_numbers: keys that are bound to a fit, a question and a sum.

An attack
    PassiveAttack: base of attacks on a recorded view. Write `_attack`.
    Aim, Reads, Shows: what an attack is about, and what it reads of a view.
    Points, MembershipScores: results: claimed rows, and scores of candidates.
    equations_of, System: what each sum of a view says of rows, and all of it as one system of equations.
    evaluate: scores a result by the truth.

A metric
    AskedMetric: the question of a metric, and its options.
    federation_over, open_over: a federation of clients that agree on a metric, or on questions one by one.
    Index: a metric with the rule by which it chooses a number of clusters.
    as_numbers: a table of numbers, or privfed's error.

Errors that a part may raise
    ArgumentError, DataError, MessageError, NotEnoughClientsError, PolicyError, PrivacyError, PrivFedError,
    RefusedError.

To try a part
    Box, ClientPolicy, DWFKMeans, Privacy: as in `privfed`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

from privfed.algorithms.rounds import ClusteringOutcome, Restart, Restarts, RoundsAlgorithm
from privfed.core.agreed.configuration import Terms
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.agreed.program import check_parameters
from privfed.core.asking.declaration import Declaration
from privfed.core.asking.phases import Cycle, Form, Phase, Same, Shape, Within
from privfed.core.asking.question import AdditiveOver, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.names import ALGORITHMS, lazily
from privfed.core.roles.conversation import Ask, Setting, Total
from privfed.core.roles.engine import Exchange, gather
from privfed.core.roles.secure_sum import COLLECT, Assumptions, Stage
from privfed.core.stored.encoding import Codec, Message, Refusal, decode, encode, types_of
from privfed.core.values.domain import Box, Ranges
from privfed.core.values.numbers import as_numbers, check_number, check_whole
from privfed.errors import (
    ArgumentError,
    DataError,
    MessageError,
    NotEnoughClientsError,
    PolicyError,
    PrivacyError,
    PrivFedError,
    RefusedError,
)
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.choosing import Index
from privfed.estimators.declaring import Parameter, parameter, parameters
from privfed.estimators.fitting import check_declared, check_init
from privfed.estimators.local_steps import DWFKMeans
from privfed.estimators.parameters import Cohorts, Patience, Rounds, Starts
from privfed.federation.opening import federation_over, open_over
from privfed.metrics.asked import AskedMetric
from privfed.privacy.bounds import RecordBounded, counted
from privfed.privacy.claim import Privacy
from privfed.privacy.contributions import Contribution
from privfed.protocols.answering import admit, answer, refusal_code
from privfed.protocols.crypto.fixed_point import grid_of
from privfed.protocols.crypto.keys import bound_prefix, expand, with_numbers
from privfed.protocols.crypto.keystream import Masker
from privfed.questions.lloyd import Inertia, LloydSums, check_centers
from privfed.questions.ranges import locate, range_phases

if TYPE_CHECKING:
    from privfed.attacks.base.interface import PassiveAttack
    from privfed.attacks.base.preparation import Aim
    from privfed.attacks.base.reading import Reads, Shows
    from privfed.attacks.base.results import Points, evaluate
    from privfed.attacks.evidence.equations import equations_of
    from privfed.attacks.evidence.system import System
    from privfed.attacks.membership.scores import MembershipScores

__all__ = [
    "COLLECT",
    "AdditiveOver",
    "Aim",
    "ArgumentError",
    "Ask",
    "AskedMetric",
    "Assumptions",
    "Box",
    "ClientPolicy",
    "ClusteringOutcome",
    "Codec",
    "Contribution",
    "Cycle",
    "DWFKMeans",
    "DataError",
    "Declaration",
    "Entry",
    "Exchange",
    "FederatedClusterer",
    "Form",
    "Index",
    "Inertia",
    "LloydSums",
    "Masker",
    "MembershipScores",
    "Message",
    "MessageError",
    "NotEnoughClientsError",
    "PassiveAttack",
    "Phase",
    "Points",
    "PolicyError",
    "PrivFedError",
    "Privacy",
    "PrivacyError",
    "Question",
    "Ranges",
    "Reads",
    "RecordBounded",
    "Refusal",
    "RefusedError",
    "Restart",
    "Restarts",
    "RoundsAlgorithm",
    "RoundsClusterer",
    "Same",
    "Setting",
    "Shape",
    "Shows",
    "Stage",
    "Statistics",
    "StatisticsSpec",
    "System",
    "Terms",
    "Total",
    "Within",
    "admit",
    "answer",
    "as_numbers",
    "bound_prefix",
    "check_centers",
    "check_init",
    "check_number",
    "check_whole",
    "counted",
    "decode",
    "encode",
    "equations_of",
    "evaluate",
    "expand",
    "federation_over",
    "gather",
    "grid_of",
    "locate",
    "open_over",
    "parameter",
    "parameters",
    "range_phases",
    "refusal_code",
    "register",
    "register_algorithm",
    "with_numbers",
]

# Who writes no attack imports none.
__getattr__ = lazily(
    __name__,
    {
        "Aim": "privfed.attacks.base.preparation",
        "MembershipScores": "privfed.attacks.membership.scores",
        "PassiveAttack": "privfed.attacks.base.interface",
        "Points": "privfed.attacks.base.results",
        "Reads": "privfed.attacks.base.reading",
        "Shows": "privfed.attacks.base.reading",
        "System": "privfed.attacks.evidence.system",
        "equations_of": "privfed.attacks.evidence.equations",
        "evaluate": "privfed.attacks.base.results",
    },
)

Kind = TypeVar("Kind", bound=type[Any])


_DECLARED = "privfed"
"""Where a field of an algorithm keeps what it declares as a parameter."""


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(parameter,))
def register_algorithm(kind: Kind) -> Kind:
    """Register an algorithm under its class's name, so that an agreement can name it (a class decorator).

    A class that is no dataclass itself becomes a frozen one: its annotated names are its parameters. What it
    declares by `parameter` is one of its `RoundsClusterer`, too.

    Raises:
        ArgumentError: another class has the name, or a parameter is of a type that cannot be agreed on.
    """
    if "__dataclass_fields__" not in vars(kind):
        for name, one in [item for item in vars(kind).items() if isinstance(item[1], Parameter)]:
            setattr(kind, name, field(default=one.default, metadata={_DECLARED: one}))
        # Without slots, a dataclass is the class itself.
        dataclass(frozen=True, kw_only=True)(kind)
    if any(isinstance(one.default, Parameter) for one in fields(kind)):
        raise ArgumentError(f"{kind.__name__} declares a parameter, so leave out @dataclass: it becomes one.")
    check_parameters(kind)
    ALGORITHMS.add(kind.__name__, kind)
    return kind


@parameters
class RoundsClusterer(Rounds, Patience, Starts, Cohorts, FederatedClusterer):
    """Base of estimators of a `RoundsAlgorithm`: subclasses name its class as `algorithm`.

    What the algorithm declares by `parameter` is a parameter here. So is another of its fields, where the
    subclass declares it under the same name.
    """

    algorithm: ClassVar[type[RoundsAlgorithm]]

    def __init_subclass__(cls, **words: Any) -> None:
        super().__init_subclass__(**words)
        algorithm = vars(cls).get("algorithm")
        for one in () if algorithm is None else fields(algorithm):
            if _DECLARED in one.metadata and one.name not in vars(cls):
                setattr(cls, one.name, one.metadata[_DECLARED])
                cls.__annotations__[one.name] = types_of(algorithm)[one.name]
        if any(isinstance(one, Parameter) for one in vars(cls).values()):
            parameters(cls)

    def make_algorithm(self, n_features: int, seed: int) -> RoundsAlgorithm:
        """Check the parameters, and return the algorithm with those that are its fields.

        Raises:
            ArgumentError: a parameter is out of its bounds.
            PrivacyError: there is to be a guarantee; the algorithm's sums have no noise.
        """
        if self.privacy is not None:
            raise PrivacyError(f"{type(self).__name__} asks for sums without noise; use DPKMeans.")
        check_declared(self)
        return self._made(self.algorithm, n_features, seed)
