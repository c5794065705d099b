"""Cells of a study: each is one fit, identified by a hash of everything that it depends on."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec

import privfed
from privfed.attacks.registry import ATTACKS
from privfed.core.values.guarantee import Mechanism, Neighbours, Noise, Unit
from privfed.experiments.study.study import Attack, Data, Partition, Words

FORMAT = 2
"""Part of every hash; raised when the meaning of cells changes."""

USUAL = (Noise.DISTRIBUTED, Mechanism.GAUSSIAN)
"""Default noise, which the report does not name."""

AXES = ("data", "partition", "algorithm", "sum", "privacy", "defence")


class Privately(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Holds one guarantee: parameters of `Privacy`, and whether its noise is a rehearsal."""

    epsilon: float
    delta: float
    unit: Unit
    neighbours: Neighbours
    noise: Noise
    rehearsal: bool
    mechanism: Mechanism = Mechanism.GAUSSIAN


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """Holds everything that a cell depends on except its seed.

    Args:
        labels: axis -> name of this point in the report; not part of the hash.
        data: the data set to load.
        digest: hash of the data.
        estimator: name of the class; `words` are its parameters, including those of the defence.
        protocol: name of the secure sum; `protocol_words` are its parameters.
        attacks: attacks that are run on each cell; not part of the hash.
        audit: number of draws with which the releases are audited; not part of the hash.
        metrics: metrics that the study names beside `MEASURES`; not part of the hash.
    """

    labels: dict[str, str]
    data: Data
    digest: str
    partition: Partition
    estimator: str
    words: Words
    protocol: str
    protocol_words: Words
    privacy: Privately | None
    attacks: list[Attack]
    audit: int = 0
    metrics: list[str] = msgspec.field(default_factory=list)

    @property
    def content(self) -> dict[str, Any]:
        """The values that the hash is computed from, for JSON."""
        how = msgspec.to_builtins(self.partition)
        return {
            "format": FORMAT,
            "privfed": privfed.__version__,
            "data": self.digest,
            "domain": [self.data.low, self.data.high],
            "public": self.data.public,
            "partition": {name: value for name, value in how.items() if name != "name"},
            "estimator": self.estimator,
            "words": self.words,
            "protocol": self.protocol,
            "protocol_words": self.protocol_words,
            "privacy": None if self.privacy is None else msgspec.to_builtins(self.privacy),
        }

    @property
    def id(self) -> str:
        """Id of the configuration, ten hexadecimal digits."""
        return _hash(self.content)

    def cell(self, seed: int) -> str:
        """Return the id of one seed's cell."""
        return _hash(self.content | {"seed": seed})

    def parts(self) -> list[str]:
        """Return the parts of a cell, stored separately: the fit, each attack and named metric, the audit."""
        audited = self.privacy is not None and self.audit
        return [
            "fit",
            *map(attack_id, self.attacks),
            *map(metric_id, self.metrics),
            *([f"audit:{self.audit}"] if audited else []),
        ]


def _hash(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def attack_id(attack: Attack) -> str:
    """Return the name under which a cell stores the result of an attack."""
    words = msgspec.to_builtins(attack) | {"kind": ATTACKS.canonical(attack.kind)}
    return f"attack:{_hash({k: v for k, v in words.items() if k not in ('name', 'sums', 'algorithms')})}"


def attack_label(attack: Attack) -> str:
    """Return the name of an attack in the report."""
    helped = f", {len(attack.colluding)} colluding" if attack.colluding else ""
    kind = ATTACKS.canonical(attack.kind)
    return attack.name or f"{kind}{'' if attack.party == 'server' else f' ({attack.party})'}{helped}"


def metric_id(metric: str) -> str:
    """Return the name under which a cell stores a metric that a study names."""
    return f"metric:{metric}"


def data_label(data: Data) -> str:
    """Return the name of a data set in the report."""
    return data.name or Path(data.source).name


def privacy_label(privately: Privately | None) -> str:
    """Return the name of a guarantee in the report."""
    if privately is None:
        return "none"
    words = [privately.unit, *(one for one in (privately.noise, privately.mechanism) if one not in USUAL)]
    return f"epsilon {privately.epsilon:g}, {' '.join(words)}"
