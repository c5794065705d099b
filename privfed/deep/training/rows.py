"""Gradients of each row of a torch module, computed from that row alone (`torch.func.vmap`).

The gradient of a layer's weights follows from that of its output, and from its input. Where a linear layer
takes one vector of a row it is an outer product (Goodfellow 2015, arXiv 1510.01799): these two factors are
returned in its place. Of a convolution it is a matrix product of each row by itself, over positions.

For blocks of one shape the operations that `vmap` finds are recorded once, on rows of nobody.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property, partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from opacus.validators import ModuleValidator
from torch.fx.experimental.proxy_tensor import make_fx

from privfed.deep.training.trainer import Numbers, Parts, one_line
from privfed.errors import PrivacyError

Function = Callable[..., Sequence[Any]]
"""From rows, what is given with them and values to gradients and inputs, as `RowGradients._each`."""


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

    def __call__(self, trained: Sequence[Any], rows: Any, given: Any) -> Parts:
        """Return the parts of gradients, as `Parts` says.

        Args:
            trained: values of the parameters that are trained.
            rows: of shape (n_rows, n_features).
            given: with each row, first axis n_rows.
        """
        with torch.no_grad():
            return self._parts(self._each(rows, given, *trained, *self._fixed.values()))

    def of_blocks(self, trained: Sequence[Any]) -> Callable[[Iterable[tuple[Any, Any, Any]]], Parts]:
        """Return what computes the parts of blocks' rows: of each block all rows, what is given, and places.

        Args:
            trained: values of the parameters that are trained.
        """
        values = [*trained, *self._fixed.values()]

        def of_several(several: Iterable[tuple[Any, Any, Any]]) -> Parts:
            found = []
            with torch.no_grad():
                for rows, given, places in several:
                    computed = self._record(rows, given, *values)(rows, given, *values)
                    found.append([one[places] for one in computed])
                return self._parts(list(map(torch.cat, zip(*found, strict=True))))

        return of_several

    @cached_property
    def _fixed(self) -> dict[str, Any]:
        held = [*self._module.named_parameters(), *self._module.named_buffers()]
        return {name: one.detach() for name, one in held if name not in self._trained}

    def _record(self, rows: Any, given: Any, *values: Any) -> Function:
        """Return the operations of `_each` on a block of this shape, or itself if they cannot be recorded."""
        if rows.shape not in self._recorded:
            drawn, n = torch.Generator().manual_seed(0), len(self._trained)
            shown = [(one.shape, one.dtype, one.device) for one in (rows, *values[:n])]
            tried = [torch.rand(one, generator=drawn, dtype=what).to(at) for one, what, at in shown]
            start = tried[0], torch.zeros_like(given), *tried[1:], *values[n:]
            self._recorded[rows.shape] = self._each
            # A user's module may take what cannot be recorded, and then computes as before.
            with suppress(Exception):
                found = _lean(make_fx(lambda *words: self._each(*words))(*start))
                if all(map(torch.equal, found(*start), self._each(*start))):
                    self._recorded[rows.shape] = found.forward
        return self._recorded[rows.shape]

    def _each(self, rows: Any, given: Any, *values: Any) -> tuple[Any, ...]:
        """Return each row's gradients of others and of layers' outputs; and these layers' inputs."""
        named = dict(zip([*self._trained, *self._fixed], values, strict=True))
        nothing = {name: rows.new_zeros(one.given) for name, one in self._layers.items()}
        others = {name: named.pop(name) for name in self._others}

        def along(own: Any, added: Any, row: Any, given: Any) -> Any:
            inputs = {}

            def seen(name: str, taken: Any, found: Any) -> Any:
                inputs[name] = taken
                return found + added[name]

            with self._watched(seen):
                scores = torch.func.functional_call(self._module, {**named, **own}, (row[None],))
            return (scores[0] * self._towards(scores[0].detach(), given)).sum(), inputs

        def of_a_row(row: Any, given: Any) -> tuple[Any, ...]:
            gradient = torch.func.grad(along, argnums=(0, 1), has_aux=True)
            (found, outputs), inputs = gradient(others, nothing, row, given)
            return *found.values(), *outputs.values(), *(inputs[name] for name in outputs)

        return tuple(torch.func.vmap(of_a_row)(rows, given))

    def _parts(self, computed: Sequence[Any]) -> Parts:
        """Return the parts of rows, from what `_each` returns of them."""
        k, n = len(self._others), len(self._layers)
        parts: dict[str, tuple[Numbers, ...]] = {
            name: (_flat(one),) for name, one in zip(self._others, computed[:k], strict=True)
        }
        ends = zip(self._layers.values(), computed[k : k + n], computed[k + n :], strict=True)
        for layer, output, taken in ends:
            if layer.convolves:
                parts[layer.weight], parts[layer.bias] = _of_convolution(layer.module, output, taken)
            else:
                parts[layer.weight], parts[layer.bias] = (_flat(output), _flat(taken)), (_flat(output),)
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
    return (
        type(layer) is torch.nn.Conv2d
        and layer.groups == 1
        and layer.padding_mode == "zeros"
        and not isinstance(layer.padding, str)
    )


def _lean(recorded: Any) -> Any:
    """Return recorded operations without those that change nothing, or lead nowhere."""
    known = torch.ops.aten

    def is_of(node: Any, what: Any) -> bool:
        while isinstance(node, torch.fx.Node) and node.target in (known.expand.default, known.view.default):
            node = node.args[0]
        return isinstance(node, torch.fx.Node) and node.target is what

    for node in recorded.graph.nodes:
        if node.target is known.add.Tensor and is_of(node.args[1], known.new_zeros.default):
            node.replace_all_uses_with(node.args[0])
        elif node.target is known.mul.Tensor and is_of(node.args[0], known.ones_like.default):
            node.replace_all_uses_with(node.args[1])
    recorded.graph.eliminate_dead_code()
    recorded.recompile()
    return recorded


def _of_convolution(layer: Any, output: Any, taken: Any) -> tuple[tuple[Numbers], tuple[Numbers]]:
    """Return the gradients of a convolution's weights and biases, of each row, shape (n_rows, size)."""
    left, inputs = output[:, 0].flatten(2).cpu().numpy(), taken[:, 0].cpu().numpy()
    aside = ((0, 0), (0, 0), *((one, one) for one in layer.padding))
    reach = [apart * (size - 1) + 1 for apart, size in zip(layer.dilation, layer.kernel_size, strict=True)]
    steps = [slice(None, None, one) for one in (*layer.stride, *layer.dilation)]
    windows = sliding_window_view(np.pad(inputs, aside), reach, axis=(2, 3))[:, :, *steps]
    right = windows.transpose(0, 1, 4, 5, 2, 3).reshape(len(left), -1, left.shape[2])
    # numpy takes one product after the other, all of one shape.
    both = (right.transpose(0, 2, 1), np.ones((left.shape[2], 1), left.dtype))
    weights, biases = (np.matmul(left, one).reshape(len(left), -1) for one in both)
    return (weights,), (biases,)


def _flat(tensor: Any) -> Numbers:
    return np.asarray(tensor.reshape(len(tensor), -1).cpu().numpy())
