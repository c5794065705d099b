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

from privfed.errors import ArgumentError, warn

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Thing = TypeVar("Thing")


def imported(where: str) -> object:
    """Return the object that "module:Name" names, or the module that "module" names.

    The working directory is searched last for the module.

    Raises:
        ArgumentError: no such module, or nothing in it has this name.
    """
    module, colon, name = where.partition(":")
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
        for part in name.split(".") if colon else ():
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
        own: name -> location of privfed's own object, as "module:Name", or of a module.
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
        return imported(name)  # type: ignore[return-value]

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
    one, other = (_comparable(vars(each) if isinstance(each, type) else each) for each in (known, new))
    closed = getattr(known, "__closure__", None) or getattr(new, "__closure__", None)
    return not closed and _named(known) == _named(new) and one == other


def _named(definition: Any) -> list[object]:
    """Return kind, place and name of a function or a class, and those of its bases."""
    bases = getattr(definition, "__bases__", ())
    return [(type(one), one.__module__, one.__qualname__) for one in (definition, *bases)]


_OF_A_MOMENT = {"__dict__", "__weakref__", "__doc__", "__abstractmethods__", "_abc_impl", "__firstlineno__"}
"""Attributes of a class that its definition does not fix."""


def _comparable(value: Any) -> object:
    """Return a definition, or a part of one, as a value that can be compared: code without its place."""
    value = getattr(value, "func", getattr(value, "__func__", value))
    if isinstance(value, Mapping):
        return {name: _comparable(one) for name, one in value.items() if name not in _OF_A_MOMENT}
    if isinstance(value, property):
        return [_comparable(one) for one in (value.fget, value.fset, value.fdel)]
    if isinstance(value, FunctionType):
        return repr((value.__defaults__, value.__kwdefaults__)), _comparable(value.__code__)
    if isinstance(value, CodeType):
        return value.co_code, value.co_names, value.co_varnames, list(map(_comparable, value.co_consts))
    return repr(value)


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


PARTS: Registry[Any] = Registry(
    "part",
    "privfed.parts",
    {
        "models": "privfed.deep.commands.models",
        "own rows": "privfed.nodes.commands.own_rows",
        "schemas": "privfed.tables.described",
        "spreadsheets": "privfed.tables.spreadsheets",
        "torch": "privfed.deep.training.torch_trainer",
    },
)
"""Modules outside the core that do what the core asks for by these names, and does not import.

models: what commands do for estimators that train (`trains`).
own rows: `audit_own_rows` of a party that has its journal.
schemas: what columns mean, for commands that read rows by a schema.
spreadsheets: `read(path, content)` and `write(path, frame)` of .xlsx files.
torch: what trains torch modules, which nodes import before they answer.
"""


def moved(old: str, new: str) -> Callable[[str], object]:
    """Return the `__getattr__` of a module that has moved: it finds the names of the new one, and warns.

    Args:
        old: the module's `__name__`.
        new: name of the module that has them now.
    """

    def find(name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        text = f"{name} has moved from {old} to {new}: import it from there; version 0.6 has it nowhere else."
        warn(text, DeprecationWarning)
        return getattr(import_module(new), name)

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
        "GaussianMixture": "privfed.algorithms.mixtures:GaussianMixture",
        "KeptStart": "privfed.algorithms.starts:KeptStart",
        "OneShotKMeans": "privfed.algorithms.kfed:OneShotKMeans",
        "OwnSteps": "privfed.estimators.private:OwnSteps",
        "PrivateKMeans": "privfed.algorithms.private.kmeans:PrivateKMeans",
        "PrivateMixture": "privfed.algorithms.private.mixtures:PrivateMixture",
        "PrivateMoments": "privfed.algorithms.summary:PrivateMoments",
        "PrivateQuartiles": "privfed.algorithms.quartiles:PrivateQuartiles",
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
    "AsOneRecord": "privfed.questions.bounded.client_shares",
    "AveragedUpdates": "privfed.deep.training.rounds",
    "BoundedDistances": "privfed.questions.bounded.bounded_metrics",
    "BoundedInertia": "privfed.questions.bounded.bounded_metrics",
    "BoundedProfiles": "privfed.questions.bounded.bounded_metrics",
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
    "ClientSizes": "privfed.questions.client_sizes",
    "ClusterClients": "privfed.questions.cluster_spread",
    "ClusterColumns": "privfed.tables.beside",
    "ClusterDistances": "privfed.questions.cluster_spread",
    "ClusterPairs": "privfed.questions.cluster_spread",
    "ClusterProfiles": "privfed.questions.cluster_spread",
    "ClusterScatter": "privfed.questions.cluster_spread",
    "ClusterSilhouettes": "privfed.questions.cluster_spread",
    "ClusterSizes": "privfed.deep.training.rounds",
    "ClusterTimes": "privfed.tables.beside",
    "Contingency": "privfed.questions.lloyd",
    "DistanceHistogram": "privfed.questions.bounded.shells",
    "FallbackCentroids": "privfed.algorithms.wf_kmeans",
    "FeatureHistograms": "privfed.questions.histograms",
    "FeatureRanges": "privfed.questions.ranges",
    "FuzzyCentroids": "privfed.algorithms.fuzzy",
    "FuzzyObjective": "privfed.questions.fuzzy_spread",
    "FuzzyRelativeSums": "privfed.algorithms.private.noised_rounds",
    "FuzzySpread": "privfed.questions.fuzzy_spread",
    "FuzzySums": "privfed.algorithms.fuzzy",
    "GatheredPoints": "privfed.questions.gathered",
    "GridSums": "privfed.questions.bounded.bounded_sums",
    "HashSums": "privfed.questions.bounded.bounded_sums",
    "HeldOut": "privfed.deep.training.held_out",
    "Inertia": "privfed.questions.lloyd",
    "KMeansCentroids": "privfed.algorithms.starts",
    "LloydSums": "privfed.questions.lloyd",
    "LocalCentroids": "privfed.algorithms.kfed",
    "LocalClusterCounts": "privfed.questions.local_cluster_counts",
    "LocalMovements": "privfed.algorithms.private.clients",
    "MiniBatchMovements": "privfed.algorithms.minibatch",
    "MixtureLikelihood": "privfed.algorithms.mixtures",
    "MixtureMoments": "privfed.algorithms.private.mixtures",
    "MixtureSums": "privfed.algorithms.mixtures",
    "NestedCells": "privfed.questions.nested_cells",
    "Noised": "privfed.privacy.noised",
    "PointCells": "privfed.questions.local_points",
    "PointCount": "privfed.questions.gathered",
    "PointSums": "privfed.questions.local_points",
    "ProductSum": "privfed.algorithms.summary",
    "Regrouping": "privfed.deep.training.regrouping",
    "RelativeSums": "privfed.questions.bounded.bounded_sums",
    "SeededMeans": "privfed.algorithms.fkm",
    "SizeSums": "privfed.questions.bounded.bounded_sums",
    "SketchedUpdates": "privfed.deep.training.rounds",
    "SlabSums": "privfed.questions.bounded.shells",
    "Slots": "privfed.questions.slots",
    "SquareSum": "privfed.algorithms.summary",
    "SteppedMeans": "privfed.algorithms.fkm",
    "Training": "privfed.deep.training.local",
    "WeightedCentroids": "privfed.algorithms.wf_kmeans",
    "WeightedFuzzyCentroids": "privfed.algorithms.fuzzy",
}
"""Wire name of a question or part -> module that defines and registers it."""
