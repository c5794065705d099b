"""A node answers what its owner approved and nothing else, and as a client simulated in process does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed import ClientPolicy, DPKMeans, DWFKMeans, FederatedFuzzyCMeans
from privfed.core.agreed.policy import GROUP_SIZE, HIDING
from privfed.core.record.records import Asked
from privfed.data import ClientTable, ClientTables
from privfed.deploy.local import nodes_of
from privfed.engines.flower import FlowerEngine
from privfed.errors import ProtocolError
from tests.engines.flower.federations import CLAIM, WORDS, assert_same, federation, rows
from tests.engines.flower.networks import Folders

APPROVED: dict[str, Any] = {"algorithms": ["WeightedKMeans", "PrivateKMeans"]}
"""What an owner must name; all else stays as it is closed."""


def asked(folder: Path, model: Any) -> Any:
    """Fit over nodes that run in this process."""
    with FlowerEngine(folder, network=Folders(nodes_of(folder))) as engine:
        model.engine = engine
        return model.fit()


def refused(folder: Path, model: Any) -> str:
    """Fit, and return what the error says."""
    with pytest.raises(ProtocolError) as error:
        asked(folder, model)
    return str(error.value)


def test_what_is_not_approved_is_refused(tmp_path: Path) -> None:
    closed = federation(tmp_path / "closed", approved={})
    assert "policy:algorithm" in refused(closed, DWFKMeans(2, **WORDS))
    folder = federation(tmp_path / "fed", approved=APPROVED)
    assert "policy:protocol" in refused(folder, DWFKMeans(2, protocol="plain", **WORDS))
    assert "policy:algorithm" in refused(folder, FederatedFuzzyCMeans(2, max_iter=2, random_state=0))
    # Groups would void a guarantee, and whoever approves privacy approves an epsilon.
    words = {"privacy": CLAIM, "random_state": 0}
    assert "policy:groups" in refused(folder, DPKMeans(2, **words))
    private = federation(tmp_path / "private", approved={**APPROVED, "max_epsilon": 2.0, "max_delta": 1e-5})
    assert asked(private, DPKMeans(2, **words)).privacy_spent_.epsilon == 2.0
    assert "policy:privacy" in refused(private, DWFKMeans(2, **WORDS))


def tables() -> ClientTables:
    """Return the nodes' rows, loaded anew: rows that were in groups are not read one by one."""
    return ClientTables([ClientTable(f"c{i}", one) for i, one in enumerate(rows())], ("x0", "x1"))


@pytest.mark.parametrize("protocol", sorted(HIDING))
@pytest.mark.few(2)
def test_nodes_answer_from_groups_as_simulated_clients_do(protocol: str, tmp_path: Path) -> None:
    folder = federation(tmp_path / "fed", approved=APPROVED)
    over = asked(folder, DWFKMeans(2, protocol=protocol, **WORDS))
    policy = ClientPolicy(group_size=GROUP_SIZE)
    assert_same(over, DWFKMeans(2, protocol=protocol, policy=policy, **WORDS).fit(tables()))
    exact = DWFKMeans(2, protocol=protocol, **WORDS).fit(tables())
    assert not np.array_equal(over.cluster_centers_, exact.cluster_centers_)
    assert len(over.transcript_.of(Asked)) > 2
