"""The same run over Flower: clients on machines of their own. Only `apps` imports flwr.

A coordinator's process drives the run with `FlowerEngine`; Flower's SuperLink relays bytes between it and the
nodes. Trust: Flower is the network. Whoever runs the SuperLink sees who sends how much to whom, may drop
messages, and may submit code to nodes (docs/flower.md says what stops it). It holds no key of any party.
"""

from privfed.nodes.flower.engine import FlowerEngine

__all__ = ["FlowerEngine"]
