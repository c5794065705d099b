"""The masked sum for a Flower app of one's own: a mod of its clients and a workflow of its server.

They stand where `secaggplus_mod` and `SecAggPlusWorkflow` stand. Each round opens to the server the sum of
the clients' parameters, times their numbers of examples, and the sum of these numbers:

    app = ClientApp(client_fn, mods=[masked_mod])
    DefaultWorkflow(fit_workflow=MaskedWorkflow())(grid, context)

While the same clients are chosen a round takes two exchanges, the first one three more and one for the keys.

Reveals to the server: that total, and who is in it; and of a client whose parameters or examples are beyond
the bounds, that they are. Clients show no metrics and no number of examples.

What docs/protocols/masked.md says holds against a server that follows the protocol, with up to the agreed
number of colluding clients. Against one that lies it does not: clients learn each other's keys from the
server, which may make clients up, and nothing counts what rounds and runs tell together. The code of an app
comes from whoever submits the run. privfed's own nodes exchange keys before, keep a journal, and run no code
that comes over the network.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.compat.common import recorddict_compat as compat
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
from flwr.serverapp import Grid

from privfed.core.agreed.agreement import Agreement, Registry
from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.possible_totals import impossible
from privfed.core.asking.question import Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec, Within
from privfed.core.roles.conversation import Total, driven
from privfed.core.roles.engine import Client, Exchange, Replies
from privfed.core.roles.secure_sum import COLLECT
from privfed.core.stored import encoding
from privfed.core.values.domain import Ranges
from privfed.errors import PolicyError, ProtocolError, warn
from privfed.nodes.flower.apps import GridNetwork, packed, unpacked
from privfed.party.state import MemoryStore
from privfed.protocols import Masked
from privfed.protocols.crypto.keys import Identity, new_secret

_STATE, _RECORD = "privfed.masked", "privfed"


class Asked(encoding.Message, frozen=True):
    """Down: a request of the secure sum; none asks for the client's key.

    Args:
        agreement: what is agreed; empty for what the client has.
        body: the secure sum's request.
    """

    agreement: bytes = b""
    body: bytes = b""


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class WeightedUpdate(Question):
    """Ask for a client's parameters times its number of examples, and that number.

    Statistics: `examples` (1,), `update` (size,).

    Args:
        ranges: of one parameter, the same for all; its `rows` are the most examples of a client.
        size: number of parameters.
    """

    size: int

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Parameters are rounded to 2^-24 of their range, before the number of examples multiplies them."""
        low, high, most = self.ranges.low[0], self.ranges.high[0], float(self.ranges.rows)
        update = Entry(
            "update",
            (self.size,),
            low * most,
            high * most,
            (high - low) * 2.0**-24,
            Within("examples", low, high),
        )
        return StatisticsSpec(Entry("examples", (1,), 0.0, most, 1.0), update)


def masked_mod(message: Message, context: Context, call_next: Any) -> Message:
    """Answer a training message of `MaskedWorkflow` by the masked sum; hand any other one on.

    Values beyond the workflow's `clip` or `max_examples` are refused with a warning, and never clipped.
    """
    if message.metadata.message_type != MessageType.TRAIN or _RECORD not in message.content:
        return call_next(message, context)
    asked = encoding.decode(unpacked(message.content), Asked, sender="the server", stage="mod")
    kept = context.state.config_records.setdefault(_STATE, ConfigRecord({"secret": new_secret()}))
    identity = Identity(kept["secret"])
    if not asked.body:
        return Message(packed(identity.public), reply_to=message)
    if asked.agreement:
        context.state.config_records[_STATE] = kept = ConfigRecord(
            {"secret": kept["secret"], "agreement": asked.agreement}
        )

    def trained(question: Question, index: int) -> tuple[Statistics, int]:
        if not isinstance(question, WeightedUpdate):
            raise PolicyError("policy:question")
        fitted = compat.recorddict_to_fitres(call_next(message, context).content, keep_input=True)
        update = np.concatenate(
            [np.float64(one).ravel() for one in parameters_to_ndarrays(fitted.parameters)]
        )
        most, examples = question.ranges.high[0], float(fitted.num_examples)
        if not (np.abs(update).max(initial=0.0) <= most and 0.0 <= examples <= question.ranges.rows):
            warn(
                "parameters or examples are beyond the workflow's clip or max_examples: this round is refused"
            )
            raise PolicyError("policy:ranges")
        return Statistics(examples=np.array([examples]), update=examples * update), 0

    agreement = Agreement.from_bytes(kept["agreement"])
    position = agreement.registry.clients.index(identity.public)
    side = Masked().client(agreement, position, identity, ClientPolicy(undeclared=True))
    store = MemoryStore(side.codec.from_bytes(kept["side"]) if "side" in kept else None)
    reply = Client(side, store, trained).handle(asked.body)
    if (state := store.load()) is not None:
        kept["side"] = side.codec.to_bytes(state)  # Flower keeps it once the message is answered.
    return Message(packed(reply), reply_to=message)


class MaskedWorkflow:
    """Federated averaging in which the server reads sums alone: the `fit_workflow` of a `DefaultWorkflow`.

    Clients that were lost, or refused, are the round's failures.

    Args:
        protocol: the masked sum; `Masked()` by default, whose `losses` bounds how often clients may be lost.
        clip: largest absolute value of a parameter. Beyond it a client refuses.
        max_examples: most examples of a client.
        rounds: most rounds over the same clients.
        timeout: seconds that clients have for a reply.
    """

    def __init__(
        self,
        protocol: Masked | None = None,
        *,
        clip: float = 8.0,
        max_examples: int = 1 << 20,
        rounds: int = 1000,
        timeout: float = 600.0,
    ) -> None:
        self._protocol, self._rounds, self._timeout = protocol or Masked(), rounds, timeout
        self._ranges = Ranges(np.array([-clip]), np.array([clip]), max_examples)
        self._key, self._nodes, self._asked = Identity.generate(), tuple[int, ...](), 0
        self._session: Any = None

    def __call__(self, grid: Grid, context: Any) -> None:
        """Carry out one round: parameters are replaced where the sum opens, and stay where it does not."""
        number = int(context.state.config_records[MAIN_CONFIGS_RECORD][Key.CURRENT_ROUND])
        parameters = compat.arrayrecord_to_parameters(context.state.array_records[MAIN_PARAMS_RECORD], True)
        chosen = context.strategy.configure_fit(number, parameters, context.client_manager)
        proxies = {proxy.node_id: proxy for proxy, _ in chosen}
        arrays = parameters_to_ndarrays(parameters)
        question = WeightedUpdate(ranges=self._ranges, size=sum(one.size for one in arrays))
        fits = {proxy.node_id: compat.fitins_to_recorddict(one, True) for proxy, one in chosen}
        try:
            total = self._summed(GridNetwork(grid, MessageType.TRAIN), fits, question)
        except ProtocolError as error:
            self._nodes = ()
            return warn(f"round {number} opened nothing: {error}")
        examples, ends = float(total.statistics["examples"][0]), np.cumsum([one.size for one in arrays])
        parts = zip(np.split(total.statistics["update"] / max(examples, 1.0), ends[:-1]), arrays, strict=True)
        same = ndarrays_to_parameters([own.reshape(one.shape).astype(one.dtype) for own, one in parts])
        result = FitRes(Status(Code.OK, ""), same, round(examples / len(total.contributors)), {})
        there = [(proxies[self._nodes[i]], result) for i in total.contributors]
        lost = [ProtocolError(f"{self._nodes[i]} was lost in {stage}") for i, stage in total.dropped.items()]
        averaged, metrics = context.strategy.aggregate_fit(number, there, lost)
        context.state.array_records[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(averaged, True)
        context.history.add_metrics_distributed_fit(server_round=number, metrics=metrics)

    def _summed(self, network: GridNetwork, fits: dict[int, RecordDict], question: Question) -> Total:
        """Open one sum, over a new agreement where the clients are others than before."""
        sent: dict[int, bytes] = {}

        def carried(exchange: Exchange) -> Replies:
            data = {
                self._nodes[i]: encoding.encode(Asked(sent.pop(i, b""), body))
                for i, body in exchange.requests.items()
            }
            heard = network.send(data, self._timeout, fits if exchange.stage == COLLECT else {})
            return [(self._nodes.index(node), data) for node, data in heard.replies.items()]

        if set(fits) != set(self._nodes):
            keys = network.send(dict.fromkeys(fits, encoding.encode(Asked())), self._timeout).replies
            self._nodes, self._asked, n = tuple(sorted(keys)), 0, len(keys)
            configuration = Configuration(
                protocol=self._protocol.name,
                algorithm='{"algorithm": "FedAvg"}',
                clients=tuple(map(str, self._nodes)),
                n_features=1,
                terms=self._protocol.terms(n, n, self._rounds),
                nonce=new_secret(),
            )
            agreement = Agreement(
                configuration, Registry(tuple(keys[node] for node in self._nodes), self._key.public)
            )
            sent = dict.fromkeys(range(n), agreement.to_bytes())
            self._session = self._protocol.coordinator(agreement, self._key)
            driven(self._session.open(), carried)
        self._asked += 1
        total: Total = driven(self._session.sum(question, self._asked - 1, 0, (0,)), carried)
        if (error := impossible(question, total.statistics, len(total.contributors))) is not None:
            raise error
        return total
