"""Steps that the clients of every secure sum share: decode a question, ask the policy, answer in range."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from privfed.core.agreed.configuration import SLOTTED, Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.question import Question, question_from_bytes
from privfed.core.roles.engine import Answerer
from privfed.core.stored.encoding import CODE
from privfed.core.values.domain import FloatArray
from privfed.errors import FAILED, MessageError, PolicyError
from privfed.numerics.kmeans import known_answers
from privfed.privacy.ledger import refuses_fit


@dataclass(frozen=True, slots=True)
class RangedAnswer:
    """Holds one client's answer, clipped to the ranges of the question.

    Args:
        question: what was asked.
        vector: flat statistics, float64 of shape (question.spec.size,).
        clipped: rows and entries that were clipped into their ranges.
    """

    question: Question
    vector: FloatArray
    clipped: int


def admit_configuration(configuration: Configuration, policy: ClientPolicy) -> None:
    """Check that a client takes part in what was agreed, and can: it computes the agreed known answers.

    Raises:
        PolicyError: it does not; the error's text is the code of the refusal.
    """
    code = refuses_fit(policy, configuration)
    if code is not None:
        raise PolicyError(code)
    if configuration.numerics and configuration.numerics != known_answers():
        raise PolicyError("numerics")


FEWEST_SUMMED = 3
"""Fewest clients in a sum that hides answers: of two, each would learn the other's from the total."""


def check_promised(
    configuration: Configuration, *, verified: bool, shows: bool = False, one_key: bool = False
) -> None:
    """Check that terms promise what a sum keeps: no more, and where it hides two honest clients of three.

    A policy goes by the terms, and so does the share of noise that a client adds: whoever writes them alone
    could promise a thousand honest clients in a sum that shows every answer, or a single one in a sum that
    hides them. Cohorts of two are refused by each client, too: the total tells each the other's answer. So is
    a sum whose terms say otherwise than its name whether clients verify totals, or whether there are slots: a
    policy lists names, and where there are slots nothing is added up.

    Args:
        configuration: what was agreed.
        verified: whether every client gets every total of the named sum, and checks it.
        shows: whether the sum shows every answer.
        one_key: whether one client's key opens every upload.

    Raises:
        PolicyError: they do not; the error's text is the code of the refusal.
    """
    terms, n_clients = configuration.terms, len(configuration.clients)
    alone = terms.honest > 1 if shows else terms.honest < 2
    few = min(n_clients, configuration.cohorts.smallest(n_clients)) < FEWEST_SUMMED
    named = terms.verified == verified and (not terms.slotted or configuration.protocol.startswith(SLOTTED))
    if not named or alone or (few and not shows) or (terms.colluders and (shows or one_key)):
        raise PolicyError("policy:terms")


def admit(
    data: bytes, policy: ClientPolicy, configuration: Configuration, *, server_opens: bool = True
) -> Question:
    """Decode a question and check it against the policy and the configuration.

    Args:
        data: the encoded question.
        policy: the client's policy.
        configuration: what the client agreed to.
        server_opens: whether the server reads the total. If it does, the server cannot be the party that
            adds the noise.

    Raises:
        MessageError: not a well-formed question.
        PolicyError: it takes too much memory or work, or the policy refuses it; the error's text is the code
            of the refusal.
    """
    if server_opens and configuration.noised_by_server:
        raise PolicyError("policy:noise")
    question = question_from_bytes(data)
    code = policy.refuses_question(question, configuration)
    if code is not None:
        raise PolicyError(code)
    return question


def answer(question: Question, index: int, answerer: Answerer) -> RangedAnswer:
    """Answer a question, clip the answer into its ranges and count what was clipped.

    The answerer of a `Client` has checked the answer's layout.
    """
    statistics, rows_clipped = answerer(question, index)
    vector = statistics.vector
    if question.spec.holds(vector):
        return RangedAnswer(question, vector, rows_clipped)
    missing = np.isnan(vector)
    # The grid has no NaN, and a refusal would tell the server that there was one: a NaN is clipped to zero.
    vector, outside = question.spec.clip(np.where(missing, 0.0, vector))
    return RangedAnswer(question, vector, rows_clipped + outside + int(np.count_nonzero(missing)))


def refusal_code(error: Exception) -> str:
    """Return the code that a client sends to the coordinator instead of an error's text.

    Only a `PolicyError` brings its own code, and only if that has the form of a code.
    """
    if isinstance(error, PolicyError):
        return str(error) if re.fullmatch(CODE, str(error)) else FAILED
    return "message" if isinstance(error, MessageError) else FAILED
