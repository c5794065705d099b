"""Lines of keys in TOML texts."""

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from privfed.experiments.reading import line_of, lines_of

TEXT = '''\
# A comment.
name = "a"   # and another

[[algorithm]]
estimator = "DWFKMeans"
words = [
  1,
  # [[sum]]
]
grid = { n_init = [1, 2] }
[algorithm.more]
a.b = 1
[[algorithm]]
"quoted key" = """
[table] = not one
"""
last = 1
'''


def test_every_key_has_the_line_on_which_it_begins() -> None:
    lines = lines_of(TEXT)
    assert lines == {
        ("name",): 2,
        ("algorithm",): 4,
        ("algorithm", 0): 4,
        ("algorithm", 0, "estimator"): 5,
        ("algorithm", 0, "words"): 6,
        ("algorithm", 0, "grid"): 10,
        ("algorithm", 0, "grid", "n_init"): 10,
        ("algorithm", 0, "more"): 11,
        ("algorithm", 0, "more", "a"): 12,
        ("algorithm", 0, "more", "a", "b"): 12,
        ("algorithm", 1): 13,
        ("algorithm", 1, "quoted key"): 14,
        ("algorithm", 1, "last"): 17,
    }


def test_what_has_no_line_has_that_of_what_holds_it() -> None:
    lines = lines_of(TEXT)
    assert line_of(lines, ("algorithm", 1, "missing", 3)) == 13
    assert line_of(lines, ("missing",)) == 1


@given(st.lists(st.tuples(st.sampled_from(["", "# no = 1", "\n"]), st.integers(-5, 5)), max_size=8))
def test_the_line_of_a_key_begins_with_the_key(entries: list[tuple[str, int]]) -> None:
    """For all keys: text.splitlines()[line - 1] starts with the key."""
    text = "".join(f"{before}\nkey{i} = {value}\n" for i, (before, value) in enumerate(entries))
    assert set(lines_of(text)) == {(key,) for key in tomllib.loads(text)}
    for (key,), line in lines_of(text).items():
        assert text.splitlines()[line - 1].startswith(f"{key} =")
