"""Cells: one fit each, known by a hash of all that it depends on."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec

import privfed
from privfed.attacks.registry import ATTACKS
from privfed.experiments.study.study import Attack, Data, Partition, Words

FORMAT = 2
"""Part of every hash: raised when cells come to mean something else."""

USUAL = ("distributed", "gaussian")
"""Noise that the report does not name."""

AXES = ("data", "partition", "algorithm", "sum", "privacy", "defence")


class Privately(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One guarantee: words of `Privacy`, and whether its noise is a rehearsal."""

    epsilon: float
    delta: float
    unit: str
    neighbours: str
    noise: str
    rehearsal: bool
    mechanism: str = "gaussian"


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """All that a cell depends on but its seed.

    Args:
        labels: axis -> what the report calls this point of it; no part of the hash.
        data: what to load.
        digest: of the data.
        estimator: name of the class; `words` are its own, those of the defence among them.
        protocol: name of the secure sum; `protocol_words` are its own.
        attacks: what is run on each cell; no part of the hash.
        audit: draws with which the releases are audited; no part of the hash.
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

    @property
    def content(self) -> dict[str, Any]:
        """What the hash is taken of, in JSON's terms."""
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
        """Ten hexadecimal digits."""
        return _hash(self.content)

    def cell(self, seed: int) -> str:
        """Return the id of one seed's cell."""
        return _hash(self.content | {"seed": seed})

    def parts(self) -> list[str]:
        """Return the parts of a cell, each stored by itself: the fit, each attack, the audit."""
        audited = self.privacy is not None and self.audit
        return ["fit", *map(attack_id, self.attacks), *([f"audit:{self.audit}"] if audited else [])]


def _hash(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def attack_id(attack: Attack) -> str:
    """Return the name under which a cell keeps what an attack found."""
    words = msgspec.to_builtins(attack) | {"kind": ATTACKS.canonical(attack.kind)}
    return f"attack:{_hash({k: v for k, v in words.items() if k not in ('name', 'sums', 'algorithms')})}"


def attack_label(attack: Attack) -> str:
    """Return what the report calls an attack."""
    helped = f", {len(attack.colluding)} colluding" if attack.colluding else ""
    kind = ATTACKS.canonical(attack.kind)
    return attack.name or f"{kind}{'' if attack.party == 'server' else f' ({attack.party})'}{helped}"


def data_label(data: Data) -> str:
    """Return what the report calls a data set."""
    return data.name or Path(data.source).name


def privacy_label(privately: Privately | None) -> str:
    """Return what the report calls a guarantee."""
    if privately is None:
        return "none"
    words = [privately.unit, *(one for one in (privately.noise, privately.mechanism) if one not in USUAL)]
    return f"epsilon {privately.epsilon:g}, {' '.join(words)}"
