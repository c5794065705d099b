"""Clients that answer whatever they are asked: what tests ask one by one is no algorithm's program."""

from privfed.core.agreed.policy import ClientPolicy

ANYTHING = ClientPolicy(undeclared=True)
