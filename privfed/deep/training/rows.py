"""Gradients of each row of a torch module, computed from that row alone (`torch.func.vmap`).

The gradient of a layer's weights follows from that of its output, and from its input. Where a linear layer
takes one vector of a row it is an outer product (Goodfellow 2015, arXiv 1510.01799): these two factors are
returned in its place. Of a convolution it is a matrix product of each row by itself, over positions.

For blocks of one shape the operations that `vmap` finds are recorded once, on rows of nobody.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property, partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from opacus.validators import ModuleValidator
from torch.fx.experimental.proxy_tensor import make_fx

from privfed.deep.training.trainer import Numbers, one_line
from privfed.errors import PrivacyError

Values = Mapping[str, Any]
"""Tensors by the names of parameters and buffers."""

Function = Callable[[Values, Any, Any], Any]
"""From values, rows and what is given with them to gradients and inputs, as `RowGradients._each`."""


class Layer(NamedTuple):
    """A layer whose weights' gradient is computed from its output's."""

    module: Any
    weight: str
    bias: str
    """Names of its parameters, whether it has a bias or not."""
    taken: tuple[int, ...] = ()
    given: tuple[int, ...] = ()
    """Shapes of its input and output, for one row."""

    @property
    def convolves(self) -> bool:
        """Whether it is a convolution."""
        return isinstance(self.module, torch.nn.Conv2d)


class RowGradients:
    """Gradients of each row.

    Args:
        module: in evaluation mode.
        rows: one row of zeros, of shape (1, n_features), by which these layers are found.
        towards: from one row's scores, and what is given with it, to the gradient of its loss by the scores.

    Raises:
        PrivacyError: a layer mixes rows, or torch adds up in another order each time.
    """

    def __init__(self, module: Any, rows: Any, towards: Callable[[Any, Any], Any]) -> None:
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
        self._module, self._towards = module, towards
        self._trained = {name: one for name, one in module.named_parameters() if one.requires_grad}
        self._layers = _candidates(module)
        self._layers = self._followed(rows)
        known = {name for layer in self._layers.values() for name in (layer.weight, layer.bias)}
        self._others = [name for name in self._trained if name not in known]
        self._recorded = dict[tuple[int, ...], Function]()

    @cached_property
    def held(self) -> int:
        """Numbers of one row that a block holds."""
        layers = sum(prod(one.taken) + prod(one.given) for one in self._layers.values())
        return layers + sum(int(self._trained[name].numel()) for name in self._others)

    @cached_property
    def products(self) -> int:
        """Products that the scores of a row take, about."""
        often = {one.weight: prod(one.given[2:]) for one in self._layers.values()}
        return sum(int(one.numel()) * often.get(name, 1) for name, one in self._trained.items())

    def __call__(self, trained: Sequence[Any], rows: Any, given: Any) -> list[tuple[Numbers, ...]]:
        """Return the parts of gradients, as `Parts` says.

        Args:
            trained: values of the parameters that are trained.
            rows: of shape (n_rows, n_features).
            given: with each row, first axis n_rows.
        """
        with torch.no_grad():
            return self._parts(
                self._each(self._values(trained), rows, given), torch.arange(len(rows), device=rows.device)
            )

    def of_blocks(self, trained: Sequence[Any]) -> Callable[[Any, Any, Any], list[tuple[Numbers, ...]]]:
        """Return what computes the parts of a block's rows at some places, from its rows and what is given.

        Args:
            trained: values of the parameters that are trained.
        """
        values = self._values(trained)

        def of_block(rows: Any, given: Any, places: Any) -> list[tuple[Numbers, ...]]:
            with torch.no_grad():
                return self._parts(self._record(values, rows, given)(values, rows, given), places)

        return of_block

    @cached_property
    def _fixed(self) -> dict[str, Any]:
        held = [*self._module.named_parameters(), *self._module.named_buffers()]
        return {name: one.detach() for name, one in held if name not in self._trained}

    def _values(self, trained: Sequence[Any]) -> dict[str, Any]:
        return {**dict(zip(self._trained, trained, strict=True)), **self._fixed}

    def _record(self, values: Values, rows: Any, given: Any) -> Function:
        """Return the operations of `_each` on a block of this shape, or itself if they cannot be recorded."""
        if rows.shape not in self._recorded:
            drawn = torch.Generator().manual_seed(0)

            def tried(one: Any) -> Any:
                return torch.rand(one.shape, generator=drawn, dtype=one.dtype).to(one.device)

            values = {name: tried(one) if name in self._trained else one for name, one in values.items()}
            start = values, tried(rows), torch.zeros_like(given)
            self._recorded[rows.shape] = self._each
            # A user's module may take what cannot be recorded, and then computes as before.
            with suppress(Exception):
                found = make_fx(lambda values, rows, given: self._each(values, rows, given))(*start)
                both = (torch.utils._pytree.tree_leaves(one(*start)) for one in (found, self._each))
                if all(map(torch.equal, *both)):
                    self._recorded[rows.shape] = found
        return self._recorded[rows.shape]

    def _each(self, values: Values, rows: Any, given: Any) -> Any:
        """Return gradients of others and biases, and of layers' outputs; and these layers' inputs."""
        nothing = {name: rows.new_zeros(one.given) for name, one in self._layers.items()}
        others = {name: values[name] for name in self._others}
        fixed = {name: one for name, one in values.items() if name not in others}

        def along(own: Any, added: Any, row: Any, given: Any) -> Any:
            inputs = {}

            def seen(name: str, taken: Any, found: Any) -> Any:
                inputs[name] = taken
                return found + added[name]

            with self._watched(seen):
                scores = torch.func.functional_call(self._module, {**fixed, **own}, (row[None],))
            return (scores[0] * self._towards(scores[0].detach(), given)).sum(), inputs

        def of_a_row(row: Any, given: Any) -> Any:
            gradient = torch.func.grad(along, argnums=(0, 1), has_aux=True)
            (found, outputs), inputs = gradient(others, nothing, row, given)
            for name, layer in self._layers.items():
                if layer.bias in self._trained:
                    found[layer.bias] = outputs[name].sum((0, *range(2, len(layer.given))))
            return found, outputs, inputs

        return torch.func.vmap(of_a_row)(rows, given)

    def _parts(self, computed: Any, at: Any) -> list[tuple[Numbers, ...]]:
        """Return the parts of the rows at some places."""
        found, outputs, inputs = computed
        parts: dict[str, tuple[Numbers, ...]] = {name: (_flat(one[at]),) for name, one in found.items()}
        for name, layer in self._layers.items():
            output, taken = outputs[name][at], inputs[name][at]
            if layer.convolves:
                parts[layer.weight] = (_of_convolution(layer.module, output[:, 0], taken[:, 0]),)
            else:
                parts[layer.weight] = (_flat(output), _flat(taken))
        return [parts[name] for name in self._trained]

    @contextmanager
    def _watched(self, seen: Callable[[str, Any, Any], Any]) -> Iterator[None]:
        """Have each layer return what `seen` makes of its name, its input and its output."""

        def hook(name: str, layer: Any, given: Any, named: Any, found: Any) -> Any:
            # Of one parameter, which may be named: layer(input=rows).
            return seen(name, [*given, *named.values()][0], found)

        with ExitStack() as hooks:
            for name, layer in self._layers.items():
                own = layer.module.register_forward_hook(partial(hook, name), with_kwargs=True)
                hooks.callback(own.remove)
            yield

    def _followed(self, rows: Any) -> dict[str, Layer]:
        """Return the layers that take one thing of a row, once, and whose parameters nothing else uses."""
        shapes: dict[str, list[tuple[tuple[int, ...], tuple[int, ...]]]] = {name: [] for name in self._layers}

        def seen(name: str, taken: Any, found: Any) -> Any:
            shapes[name].append((tuple(taken.shape), tuple(found.shape)))
            # Without gradients of its own: one that a parameter has all the same is of another use.
            layer = self._layers[name].module
            own = [None if one is None else one.detach() for one in (layer.weight, layer.bias)]
            if isinstance(layer, torch.nn.Linear):
                return torch.nn.functional.linear(taken, *own)
            return torch.nn.functional.conv2d(taken, *own, layer.stride, layer.padding, layer.dilation)

        with torch.enable_grad(), self._watched(seen):
            scores = self._module(rows)
        own = [one for layer in self._layers.values() for one in layer.module.parameters()]
        used = [None] * len(own)
        if own and scores.requires_grad:
            used = torch.autograd.grad(scores.sum(), own, allow_unused=True)
        elsewhere = {id(one) for one, other in zip(own, used, strict=True) if other is not None}
        return {
            name: layer._replace(taken=shapes[name][0][0], given=shapes[name][0][1])
            for name, layer in self._layers.items()
            if len(shapes[name]) == 1
            and len(shapes[name][0][0]) == (4 if layer.convolves else 2)
            and shapes[name][0][0][0] == 1
            and not any(id(one) in elsewhere for one in layer.module.parameters())
        }


def _candidates(module: Any) -> dict[str, Layer]:
    """Return the layers that may be followed, whose parameters are trained and stand in the module once."""
    named = Counter(map(id, dict(module.named_parameters(remove_duplicate=False)).values()))
    return {
        name: Layer(layer, f"{name}.weight".lstrip("."), f"{name}.bias".lstrip("."))
        for name, layer in module.named_modules()
        if (type(layer) is torch.nn.Linear or _plain_convolution(layer))
        and all(one.requires_grad and named[id(one)] == 1 for one in layer.parameters())
        and not (layer._forward_hooks or layer._forward_pre_hooks)
    }


def _plain_convolution(layer: Any) -> bool:
    """Say whether a layer convolves images, by one group and with zeros around them."""
    plain = type(layer) is torch.nn.Conv2d and layer.groups == 1 and layer.padding_mode == "zeros"
    return plain and not isinstance(layer.padding, str)


def _of_convolution(layer: Any, output: Any, taken: Any) -> Numbers:
    """Return the gradient of a convolution's weights, of each row, shape (n_rows, size)."""
    where = layer.kernel_size, layer.dilation, layer.padding, layer.stride
    windows = torch.nn.functional.unfold(taken, *where)
    left, right = output.flatten(2).cpu().numpy(), windows.cpu().numpy()
    # numpy takes one product after the other, all of one shape.
    return np.asarray(np.matmul(left, right.transpose(0, 2, 1)).reshape(len(left), -1))


def _flat(tensor: Any) -> Numbers:
    return np.asarray(tensor.reshape(len(tensor), -1).cpu().numpy())
