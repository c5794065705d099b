"""How names become code: registries of what users may add, lazy imports, and privfed's own names.

An entry has a registered name. It is privfed's own, or an installed package declares it (as an entry point
of the registry's group), or it was added in Python. `resolve` also imports "module:Name"; it is
only for text that a person wrote on this machine (a command line, a study file). Names from a run folder, a
saved model, a message or an agreement go through `find`, which never imports a module that they name. A
registered name keeps its meaning: another definition under it is an error (`same_definition`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from privfed.errors import ArgumentError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Thing = TypeVar("Thing")


def imported(where: str) -> object:
    """Return the object that "module:Name" names; the working directory is searched last for the module.

    Raises:
        ArgumentError: no such module, or nothing in it has this name.
    """
    module, _, name = where.partition(":")
    if (here := os.getcwd()) not in sys.path:
        sys.path.append(here)
    try:
        found: object = import_module(module)
    except (ImportError, ValueError) as error:
        raise ArgumentError(
            f"{where!r} cannot be imported ({type(error).__name__}: {error}); write module:Name of a module "
            "in this directory or on PYTHONPATH, and a name that it defines."
        ) from None
    try:
        for part in name.split("."):
            found = vars(found)[part]
    except (KeyError, TypeError):
        raise ArgumentError(
            f"{where!r}: module {module} does not define {name!r}; write module:Name."
        ) from None
    return found


class Registry(Generic[Thing]):
    """Named objects of one kind. Those of privfed and of installed packages are imported when first used.

    Args:
        kind: what it holds, in a word for messages, such as "estimator".
        group: group of the entry points by which installed packages add to it, such as "privfed.estimators".
        own: name -> location of privfed's own object, as "module:Name".
        also: another word for a name -> the name; such a word is understood, but never listed.
    """

    def __init__(
        self, kind: str, group: str, own: Mapping[str, str], also: Mapping[str, str] | None = None
    ) -> None:
        self.kind, self.group = kind, group
        self._places, self._also = dict(own), dict(also or {})
        self._things: dict[str, Thing] = {}

    @cached_property
    def _declared(self) -> Mapping[str, EntryPoint]:
        """Entry points of installed packages, by name.

        Raises:
            ArgumentError: two packages declare the same name, or one declares a name of privfed's own.
        """
        # Imported here, since every process imports this module, and few ask for other packages' names.
        from importlib.metadata import entry_points

        found: dict[str, EntryPoint] = {}
        for one in entry_points(group=self.group):
            own = self._places.get(self.canonical(one.name))
            other = own or (found[one.name].value if one.name in found else None)
            if other is not None and other != one.value:
                raise self._collision(one.name, other, one.value)
            found[one.name] = one
        return found

    def _collision(self, name: str, one: object, other: object) -> ArgumentError:
        return ArgumentError(
            f"two things are registered as {self.kind} {name!r}: {one} and {other}; rename one of them."
        )

    def add(self, name: str, thing: Thing) -> None:
        """Register an object in this process; registering the same object again changes nothing.

        Raises:
            ArgumentError: another object has the name.
        """
        if name in self and self.find(name) is not thing:
            raise self._collision(name, self.find(name), thing)
        self._things[self.canonical(name)] = thing

    def canonical(self, word: str) -> str:
        """Return the name, as files and reports have it, for a name or another word for it."""
        return self._also.get(word, word)

    def names(self) -> tuple[str, ...]:
        """Return all names: privfed's own first, then those of packages, then those added here."""
        return tuple(iter(self))

    def added(self) -> tuple[str, ...]:
        """Return the names that are not privfed's own."""
        return tuple(name for name in self.names() if name not in self._places)

    def __iter__(self) -> Iterator[str]:
        yield from self._places
        # Other packages' names take long to find: a search that ends at privfed's own asks for none.
        others = dict.fromkeys((*sorted(self._declared), *self._things))
        yield from (name for name in others if name not in self._places)

    def __len__(self) -> int:
        return len(self.names())

    def __contains__(self, name: object) -> bool:
        name = self.canonical(name) if isinstance(name, str) else name
        return name in self._things or name in self._places or name in self._declared

    def find(self, name: object) -> Thing:
        """Return the object with a registered name.

        Raises:
            ArgumentError: nothing has this name.
        """
        if not isinstance(name, str) or name not in self:
            raise ArgumentError(f"{self.kind} must be one of {', '.join(self.names())}; got {name!r}.")
        name = self.canonical(name)
        if name not in self._things:
            own = self._places.get(name)
            thing: Thing = imported(own) if own is not None else self._declared[name].load()  # type: ignore[assignment]
            self._things[name] = thing
        return self._things[name]

    def resolve(self, name: str) -> Thing:
        """Return the object of a name or "module:Name"; only for text that a person wrote on this machine.

        Raises:
            ArgumentError: neither is known.
        """
        if name in self or ":" not in name:
            return self.find(name)
        thing: Thing = imported(name)  # type: ignore[assignment]
        return thing

    def name_of(self, thing: Thing) -> str | None:
        """Return the first name of an object, or None where it has none."""
        return next((name for name in self if self._is(name, thing)), None)

    def _is(self, name: str, thing: Thing) -> bool:
        if name in self._things:
            return self._things[name] is thing
        place = self._places[name] if name in self._places else self._declared[name].value
        return place == _place_of(thing) and self.find(name) is thing


def _place_of(thing: object) -> str | None:
    """Return where a class or function is defined, as "module:Name"; None for other values."""
    return f"{thing.__module__}:{thing.__qualname__}" if isinstance(thing, type | FunctionType) else None


def same_definition(known: Any, new: Any) -> bool:
    """Say whether two functions, or two classes, have the same module, the same name and the same code.

    A closure (a function that reads variables of an enclosing function) equals only itself. Module globals
    that a definition reads when it runs are not compared.
    """
    if known is new:
        return True
    if (known.__module__, known.__qualname__) != (new.__module__, new.__qualname__):
        return False
    if isinstance(known, type) and isinstance(new, type):
        return _body(known) == _body(new)
    if isinstance(known, FunctionType) and isinstance(new, FunctionType):
        return known.__closure__ is new.__closure__ is None and _of_function(known) == _of_function(new)
    return False


def _body(kind: type) -> dict[str, Any]:
    """Return the bases and attributes of a class as values that can be compared."""
    bases = [(base.__module__, base.__qualname__) for base in kind.__bases__]
    skipped = {"__dict__", "__weakref__", "__doc__", "__abstractmethods__", "_abc_impl", "__firstlineno__"}
    parts = {name: _plain(value) for name, value in vars(kind).items() if name not in skipped}
    return {"": bases, **parts}


def _plain(value: Any) -> Any:
    """Return an attribute of a class in comparable form: the code of a callable, the repr of other values."""
    if isinstance(value, property):
        return [_plain(one) for one in (value.fget, value.fset, value.fdel)]
    if isinstance(value, cached_property):
        return _plain(value.func)
    if isinstance(value, staticmethod | classmethod):
        return _plain(value.__func__)
    if isinstance(value, FunctionType):
        return _of_function(value)
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return repr(value)


def _of_function(function: FunctionType) -> list[Any]:
    return [_of_code(function.__code__), repr(function.__defaults__), repr(function.__kwdefaults__)]


def _of_code(code: CodeType) -> list[Any]:
    """Return what determines the behaviour of code, without file name and line numbers."""
    constants = [_of_code(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return [code.co_code, code.co_names, code.co_varnames, constants]


def lazily(package: str, places: Mapping[str, str]) -> Callable[[str], object]:
    """Return a package's `__getattr__`, which imports a name's module when the name is first used.

    A process that runs one command, or serves one message, then loads only what it needs.

    Args:
        package: the package's `__name__`.
        places: public name -> module that defines it; the name of a submodule maps to that submodule.
    """

    def find(name: str) -> object:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(places[name])
        found: object = module if places[name] == f"{package}.{name}" else vars(module)[name]
        setattr(sys.modules[package], name, found)
        return found

    return find


ALGORITHMS: Registry[type[Any]] = Registry(
    "algorithm",
    "privfed.algorithms",
    {
        "AskedMetric": "privfed.metrics.asked:AskedMetric",
        "Averaging": "privfed.deep.algorithms.averaging:Averaging",
        "BipartitionRule": "privfed.deep.algorithms.rules:BipartitionRule",
        "FeatureMoments": "privfed.questions.moments:FeatureMoments",
        "FeatureProducts": "privfed.questions.moments:FeatureProducts",
        "FeatureSummary": "privfed.algorithms.summary:FeatureSummary",
        "FederatedKMeans": "privfed.algorithms.fkm:FederatedKMeans",
        "FederatedMiniBatch": "privfed.algorithms.minibatch:FederatedMiniBatch",
        "FixedKMeans": "privfed.algorithms.private.kmeans:FixedKMeans",
        "FuzzyCMeans": "privfed.algorithms.fuzzy:FuzzyCMeans",
        "FuzzyStep": "privfed.estimators.private:FuzzyStep",
        "KeptStart": "privfed.algorithms.starts:KeptStart",
        "LloydBaseline": "privfed.algorithms.private.baselines:LloydBaseline",
        "OneShotKMeans": "privfed.algorithms.kfed:OneShotKMeans",
        "OwnSteps": "privfed.estimators.private:OwnSteps",
        "PrivateEvolution": "privfed.algorithms.private.baselines:PrivateEvolution",
        "PrivateKMeans": "privfed.algorithms.private.kmeans:PrivateKMeans",
        "PrivateMoments": "privfed.algorithms.summary:PrivateMoments",
        "PrivateSelection": "privfed.algorithms.private.selection:PrivateSelection",
        "PropagationRule": "privfed.deep.algorithms.rules:PropagationRule",
        "RegroupedLearning": "privfed.deep.algorithms.regrouped:RegroupedLearning",
        "Steps": "privfed.algorithms.private.noised_rounds:Steps",
        "Training": "privfed.deep.training.local:Training",
        "WeightedKMeans": "privfed.algorithms.wf_kmeans:WeightedKMeans",
    },
)
"""Classes that an agreement may name: dataclasses of plain values, arrays, questions and each other."""


PLACES = {
    "AsOneRecord": "privfed.questions.bounded.bounded_metrics",
    "AveragedUpdates": "privfed.deep.training.rounds",
    "BoundedDistances": "privfed.questions.bounded.bounded_metrics",
    "BoundedInertia": "privfed.questions.bounded.bounded_metrics",
    "BoundedScatter": "privfed.questions.bounded.bounded_metrics",
    "BoundedSilhouettes": "privfed.questions.bounded.bounded_metrics",
    "BoundedSpread": "privfed.questions.bounded.bounded_metrics",
    "BoundedTable": "privfed.questions.bounded.bounded_metrics",
    "CellSums": "privfed.questions.cells",
    "CenterSum": "privfed.questions.bounded.bounded_sums",
    "CentredMoments": "privfed.questions.moments",
    "CentredProducts": "privfed.questions.moments",
    "ClientLengths": "privfed.algorithms.private.clients",
    "ClientMeans": "privfed.questions.moments",
    "ClientScores": "privfed.questions.lloyd",
    "ClientShares": "privfed.algorithms.private.clients",
    "ClientSizes": "privfed.questions.histograms",
    "ClusterClients": "privfed.questions.cluster_spread",
    "ClusterDistances": "privfed.questions.cluster_spread",
    "ClusterProfiles": "privfed.questions.cluster_spread",
    "ClusterScatter": "privfed.questions.cluster_spread",
    "ClusterSilhouettes": "privfed.questions.cluster_spread",
    "ClusterSizes": "privfed.deep.training.rounds",
    "Contingency": "privfed.questions.lloyd",
    "DistanceHistogram": "privfed.questions.bounded.shells",
    "FallbackCentroids": "privfed.algorithms.wf_kmeans",
    "FeatureHistograms": "privfed.questions.histograms",
    "FeatureRanges": "privfed.questions.ranges",
    "FuzzyCentroids": "privfed.algorithms.fuzzy",
    "FuzzyObjective": "privfed.questions.cluster_spread",
    "FuzzyRelativeSums": "privfed.algorithms.private.noised_rounds",
    "FuzzySpread": "privfed.questions.cluster_spread",
    "FuzzySums": "privfed.algorithms.fuzzy",
    "GatheredPoints": "privfed.questions.gathered",
    "GridSums": "privfed.questions.bounded.bounded_sums",
    "HashSums": "privfed.questions.bounded.bounded_sums",
    "Inertia": "privfed.questions.lloyd",
    "KMeansCentroids": "privfed.algorithms.starts",
    "LloydSums": "privfed.questions.lloyd",
    "LocalCentroids": "privfed.algorithms.kfed",
    "LocalClusterCounts": "privfed.questions.local_points",
    "LocalMovements": "privfed.algorithms.private.clients",
    "MiniBatchMovements": "privfed.algorithms.minibatch",
    "NearSums": "privfed.algorithms.private.baselines",
    "NearestCounts": "privfed.algorithms.private.baselines",
    "NestedCells": "privfed.questions.cells",
    "Noised": "privfed.privacy.noised",
    "PointCells": "privfed.questions.local_points",
    "PointCount": "privfed.questions.gathered",
    "PointSums": "privfed.questions.local_points",
    "Regrouping": "privfed.deep.training.regrouping",
    "RelativeSums": "privfed.questions.bounded.bounded_sums",
    "RowSums": "privfed.algorithms.private.baselines",
    "SeededMeans": "privfed.algorithms.fkm",
    "SizeSums": "privfed.questions.bounded.bounded_sums",
    "SketchedUpdates": "privfed.deep.training.rounds",
    "SlabSums": "privfed.questions.bounded.shells",
    "Slots": "privfed.questions.gathered",
    "SquareSum": "privfed.algorithms.summary",
    "SteppedMeans": "privfed.algorithms.fkm",
    "Training": "privfed.deep.training.local",
    "WeightedCentroids": "privfed.algorithms.wf_kmeans",
    "WeightedFuzzyCentroids": "privfed.algorithms.fuzzy",
}
"""Wire name of a question or part -> module that defines and registers it."""
