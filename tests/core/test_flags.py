"""True and False alone are flags of what parties agree on; other numbers that look so are refused."""

from __future__ import annotations

import numpy as np
import pytest

from privfed import ClientPolicy, DWFKMeans
from privfed.errors import ArgumentError
from privfed.protocols import Masked


@pytest.mark.parametrize("value", [np.True_, 1, "yes", None])
def test_flags_of_sums_and_policies_are_true_or_false(value: object) -> None:
    for name in ("verified", "proofs"):
        with pytest.raises(ArgumentError) as refused:
            Masked(**{name: value})  # type: ignore[arg-type]
        assert list(refused.value.parameters) == [name]
    with pytest.raises(ArgumentError) as refused:
        ClientPolicy(models=value)  # type: ignore[arg-type]
    assert list(refused.value.parameters) == ["models"]


def test_an_estimator_takes_numpys_too() -> None:
    rows = [np.random.default_rng(i).normal(size=(20, 2)) for i in range(3)]
    model = DWFKMeans(2, protocol="plain", tol=1.0, random_state=0, relocate_empty=np.True_)
    assert model.fit(rows).n_iter_ >= 1
    with pytest.raises(ArgumentError) as refused:
        model.set_params(relocate_empty="yes").fit(rows)
    assert list(refused.value.parameters) == ["relocate_empty"]
