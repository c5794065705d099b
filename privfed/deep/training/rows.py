"""Gradients of each row of a torch module, computed from that row alone (`torch.func.vmap`).

A linear layer that takes one vector of a row, once, has a gradient of its weights that is an outer product:
of the gradient of its output, and its input (Goodfellow 2015, arXiv 1510.01799). These two factors are
returned in its place.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from typing import Any

import torch
from opacus.validators import ModuleValidator

from privfed.deep.training.trainer import one_line
from privfed.errors import PrivacyError


class RowGradients:
    """Gradients of each row.

    Args:
        module: in evaluation mode.
        rows: one row of zeros, of shape (1, n_features), by which linear layers are found.

    Raises:
        PrivacyError: a layer mixes rows, or torch adds up in another order each time.
    """

    def __init__(self, module: Any, rows: Any) -> None:
        if rows.device.type != "cpu" and not torch.are_deterministic_algorithms_enabled():
            raise PrivacyError(
                f"on {rows.device} torch may add numbers in another order each time, and DP-SGD's claim "
                "needs the same one: call torch.use_deterministic_algorithms(True), or pass module.cpu()."
            )
        errors = ModuleValidator.validate(copy.deepcopy(module).train(), strict=False)
        if errors:
            raise PrivacyError(
                f"DP-SGD needs each row's own gradient, and Opacus has none: {one_line(errors[0])} "
                "Pass opacus.validators.ModuleValidator.fix(module), which puts others in the place of such "
                "layers."
            )
        self._module = module
        self._trained = {name: one for name, one in module.named_parameters() if one.requires_grad}
        self._linear = _candidates(module)
        self._linear = self._factored(rows)

    @property
    def held(self) -> int:
        """Numbers that the parts of one row's gradient hold."""
        named, linear = self._trained.items(), self._linear
        return sum(sum(one.shape) if name in linear else one.numel() for name, one in named)

    def __call__(self, rows: Any, towards: Any) -> list[tuple[Any, ...]]:
        """Return the parts of gradients, as `Parts` says.

        Args:
            rows: of shape (n_rows, n_features).
            towards: gradient of each row's loss by its scores, of shape (n_rows, n_classes).
        """
        with torch.no_grad():
            found, outputs, inputs = self._each(rows, towards)
        parts = [
            (outputs[name], inputs[name]) if name in outputs else (found[name],) for name in self._trained
        ]
        return [tuple(one.reshape(len(rows), -1) for one in part) for part in parts]

    @cached_property
    def _each(self) -> Any:
        alone = {name: one.detach() for name, one in self._trained.items() if name not in self._linear}
        nothing = {
            name: layer.weight.new_zeros(1, layer.out_features) for name, layer in self._linear.items()
        }

        def along(parameters: Any, added: Any, row: Any, towards: Any) -> Any:
            inputs = {}

            def seen(name: str, given: Any, found: Any) -> Any:
                inputs[name] = given
                return found + added[name]

            with self._watched(seen):
                scores = torch.func.functional_call(self._module, parameters, (row[None],))
            return (scores[0] * towards).sum(), inputs

        def of_a_row(row: Any, towards: Any) -> Any:
            gradient = torch.func.grad(along, argnums=(0, 1), has_aux=True)
            (found, outputs), inputs = gradient(alone, nothing, row, towards)
            return found, outputs, inputs

        return torch.func.vmap(of_a_row)

    @contextmanager
    def _watched(self, seen: Callable[[str, Any, Any], Any]) -> Iterator[None]:
        """Have each linear layer return what `seen` makes of its weights' name, its input and its output."""

        def hook(name: str, layer: Any, given: Any, named: Any, found: Any) -> Any:
            # Of one parameter, which may be named: layer(input=rows).
            return seen(name, [*given, *named.values()][0], found)

        with ExitStack() as hooks:
            for name, layer in self._linear.items():
                own = layer.register_forward_hook(partial(hook, name), with_kwargs=True)
                hooks.callback(own.remove)
            yield

    def _factored(self, rows: Any) -> dict[str, Any]:
        """Return the layers that take one vector of a row, once, and whose weights nothing else uses."""
        shapes: list[tuple[str, tuple[int, ...]]] = []

        def seen(name: str, given: Any, found: Any) -> Any:
            shapes.append((name, tuple(given.shape)))
            # Without a gradient of its weights: one that they have all the same is of another use.
            layer = self._linear[name]
            return torch.nn.functional.linear(given, layer.weight.detach(), layer.bias)

        with torch.enable_grad(), self._watched(seen):
            scores = self._module(rows)
        others = [None] * len(self._linear)
        if self._linear and scores.requires_grad:
            weights = [layer.weight for layer in self._linear.values()]
            others = torch.autograd.grad(scores.sum(), weights, allow_unused=True)
        return {
            name: layer
            for (name, layer), other in zip(self._linear.items(), others, strict=True)
            if other is None and [shape for one, shape in shapes if one == name] == [(1, layer.in_features)]
        }


def _candidates(module: Any) -> dict[str, Any]:
    """Return the linear layers whose weights are trained, and stand in the module once, by their names."""
    named = Counter(map(id, dict(module.named_parameters(remove_duplicate=False)).values()))
    return {
        f"{name}.weight" if name else "weight": layer
        for name, layer in module.named_modules()
        if type(layer) is torch.nn.Linear
        and layer.weight.requires_grad
        and named[id(layer.weight)] == 1
        and not (layer._forward_hooks or layer._forward_pre_hooks)
    }
