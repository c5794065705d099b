"""Sequences whose items are computed when they are asked for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar, overload

Item = TypeVar("Item", covariant=True)


class Computed(Sequence[Item]):
    """A sequence that computes its items; a subclass writes `item` and `__len__`."""

    __slots__ = ()

    @abstractmethod
    def item(self, place: int) -> Item:
        """Return the item at a place."""

    @overload
    def __getitem__(self, place: int) -> Item: ...

    @overload
    def __getitem__(self, place: slice) -> list[Item]: ...

    def __getitem__(self, place: int | slice) -> Item | list[Item]:
        if isinstance(place, slice):
            return [self.item(i) for i in range(*place.indices(len(self)))]
        return self.item(place)
