"""The public names of the package exist."""

import privfed.data


def test_all_lists_what_is_there() -> None:
    assert sorted(privfed.data.__all__) == list(privfed.data.__all__)
    assert all(hasattr(privfed.data, name) for name in privfed.data.__all__)
