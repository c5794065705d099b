"""Parameters declared in a class's body: constructor, signature and docstring follow from them."""

import copy
import inspect
from typing import Any

import pytest
from sklearn.base import BaseEstimator, clone

from privfed.estimators.declaring import parameter, parameters, parameters_of


@parameters
class Shared:
    tol: float = parameter(default=1e-6, text="stops when it moves by less; 0 never.")
    init: Any = parameter(default="random", text="the start.")


@parameters
class Base(Shared, BaseEstimator):
    """A base.

    Attributes:
        found_: what was found.
        kept_: what was
            kept: all of it.

    Raises:
        ValueError: a parameter is out of its bounds.
    """

    n_clusters: int = parameter(default=5, text="number of clusters.", kw_only=False)


@parameters
class Model(Base):
    """A model.

    Attributes:
        found_: something else.
    """

    weight: float = parameter(default=1.0, text="of a row.")
    init: Any = parameter(default="coreset")


def test_the_signature_has_the_nearest_declaration_in_its_first_place() -> None:
    said = {name: one.default for name, one in inspect.signature(Model).parameters.items()}
    assert list(said.items()) == [("n_clusters", 5), ("weight", 1.0), ("tol", 1e-6), ("init", "coreset")]
    assert [inspect.signature(Model).parameters[name].kind.name for name in said] == [
        "POSITIONAL_OR_KEYWORD",
        *3 * ["KEYWORD_ONLY"],
    ]
    assert Base().init == "random"


def test_the_constructor_stores_what_it_is_given_and_nothing_else() -> None:
    start = [1, 2]
    model = Model(3, init=start)
    assert vars(model) == {"n_clusters": 3, "weight": 1.0, "tol": 1e-6, "init": start}
    assert model.init is start
    assert clone(model).get_params() == model.get_params() == vars(copy.deepcopy(model))
    assert model.set_params(weight=2.0).weight == 2.0


@pytest.mark.parametrize(
    ("args", "words"), [((3, 4), {}), ((), {"wieght": 1.0}), ((3,), {"n_clusters": 3})], ids=str
)
def test_wrong_words_are_an_error_that_names_the_class(args: Any, words: Any) -> None:
    with pytest.raises(TypeError, match=r"^Model: "):
        Model(*args, **words)


def test_the_docstring_has_every_parameter_and_the_entries_of_bases() -> None:
    assert inspect.cleandoc(str(Model.__doc__)) == inspect.cleandoc(
        """A model.

        Args:
            n_clusters: number of clusters.
            weight: of a row.
            tol: stops when it moves by less; 0 never.
            init: the start.

        Attributes:
            found_: something else.
            kept_: what was kept: all of it.

        Raises:
            ValueError: a parameter is out of its bounds.
        """
    )


def test_a_class_of_ones_own_with_a_constructor_of_its_own() -> None:
    class Mine(Model):
        def __init__(self, shrink: float = 0.5, **words: Any) -> None:
            super().__init__(**words)
            self.shrink = shrink

    assert vars(Mine(tol=0.0)) == {**vars(Model(tol=0.0)), "shrink": 0.5}


def test_the_summary_is_a_sentence() -> None:
    assert parameters_of(Model)["tol"].summary == "Stops when it moves by less."
