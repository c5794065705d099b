"""scikit-learn's base classes with types, as it ships none and mypy checks no calls on an untyped base."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:

    class BaseEstimator:
        """Declares to type checkers what scikit-learn's class has."""

        def get_params(self, deep: bool = True) -> dict[str, Any]: ...  # noqa: D102
        def set_params(self, **params: Any) -> Self: ...  # noqa: D102
        def __getstate__(self) -> dict[str, Any]: ...

    class ClassNamePrefixFeaturesOutMixin:
        """Declares to type checkers what scikit-learn's class has."""

        def get_feature_names_out(self, input_features: Any = None) -> Any: ...  # noqa: D102

    class OneToOneFeatureMixin:
        """Declares to type checkers what scikit-learn's class has."""

        def get_feature_names_out(self, input_features: Any = None) -> Any: ...  # noqa: D102

    class ClusterMixin:
        """Declares to type checkers what scikit-learn's class has."""

    class TransformerMixin:
        """Declares to type checkers what scikit-learn's class has."""

        def set_output(self, *, transform: str | None = None) -> Self: ...  # noqa: D102

else:
    from sklearn.base import (
        BaseEstimator,
        ClassNamePrefixFeaturesOutMixin,
        ClusterMixin,
        OneToOneFeatureMixin,
        TransformerMixin,
    )

__all__ = [
    "BaseEstimator",
    "ClassNamePrefixFeaturesOutMixin",
    "ClusterMixin",
    "OneToOneFeatureMixin",
    "TransformerMixin",
]
