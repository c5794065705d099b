"""What an error must say by its fields, so that its words may change: a code, or its parameter."""

import pytest

from privfed.errors import ArgumentError, BoundsError, PolicyError, RefusedError


def refused_with(code: str) -> pytest.RaisesExc[RefusedError]:
    """Expect that a client refused with a code, or with one that begins so."""
    return pytest.raises(
        RefusedError, check=lambda error: any(one.startswith(code) for one in error.codes.values())
    )


def forbidden_by(code: str) -> pytest.RaisesExc[PolicyError]:
    """Expect that a client's own checks refuse, with exactly this code."""
    return pytest.raises(PolicyError, check=lambda error: str(error) == code)


def parameter_refused(name: str) -> pytest.RaisesExc[ArgumentError]:
    """Expect an error about one parameter."""
    return pytest.raises(
        ArgumentError, check=lambda error: name in (getattr(error, "parameter", None), *error.parameters)
    )


def out_of_bounds(name: str, bounds: str, value: object) -> pytest.RaisesExc[BoundsError]:
    """Expect that a parameter's value is refused, since it lies outside these bounds."""
    return pytest.raises(
        BoundsError, check=lambda error: (error.parameter, error.bounds, error.value) == (name, bounds, value)
    )
