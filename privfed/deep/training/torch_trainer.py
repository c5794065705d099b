"""Any torch module, loss and optimizer as a trainer (extra `deep`). Only it and `rows` import torch.

The module is given rows of flat features (n_rows, n_features), as numbers of its own type and on its own
device: begin with `torch.nn.Unflatten` where it wants images. It runs in evaluation mode, so that equal
arguments give equal results: dropout is off. What leaves it is float64. A module that draws all the same, or
carries one row into another one's gradient, is refused before a fit (`privfed.deep.training.probing`): with
statistics over a batch, too, which are no parameters. Each row's own gradient is computed from that row alone
(`torch.func.vmap`).

Steps are SGD's, or those of an optimizer of the user, whose state lasts for one training of one client.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from opacus.validators import ModuleValidator

from privfed.core.values.domain import FloatArray
from privfed.deep.training.dp_sgd import blocks, joined
from privfed.deep.training.fingerprint import described, fixed_numbers, kept
from privfed.deep.training.rows import RowGradients
from privfed.deep.training.trainer import MODELS, Labels, OfBlock, Parts, one_line
from privfed.errors import ArgumentError

Loss = Callable[[Any, Any], Any]
"""From a module's outputs (n, n_classes) and labels (n,) to the mean loss, a scalar tensor."""

Optimizer = Callable[..., Any]
"""From a list of parameters and `lr=` to a torch optimizer, as the classes of `torch.optim` are called."""

TYPES = (torch.float32, torch.float64)
"""Of a module's parameters."""

LEAST, MOST, PRODUCTS, HELD = 16, 128, 1 << 23, 1 << 21
"""Least and most rows of a block; products of its scores, and numbers held of blocks at once, at most."""


class TorchTrainer:
    """A torch module, its loss and its optimizer.

    Args:
        module: from (n_rows, n_features) of its parameters' type and device to scores (n_rows, n_classes).
        loss: of scores and labels, as a mean over rows; None for the cross-entropy.
        optimizer: a class of `torch.optim`, or what is called alike, such as
            `functools.partial(torch.optim.SGD, momentum=0.9)`; None for SGD.

    Raises:
        ArgumentError: the module has statistics of batches, lazy layers, nothing to train, or half precision.

    Warns:
        UserWarning: the module drops out, which is off.
    """

    def __init__(self, module: Any, loss: Loss | None = None, optimizer: Optimizer | None = None) -> None:
        if not isinstance(module, torch.nn.Module):
            raise ArgumentError(
                f"model must be a registered name, or a torch module, made as Net(); got {module!r}.",
                parameters=["model"],
            )
        _check_layers(module)
        try:
            self._module = copy.deepcopy(module).eval()
        except Exception as error:
            raise ArgumentError(
                f"the module cannot be copied: {one_line(error)} Pass one of plain layers, not scripted, and "
                "torch.nn.utils.parametrizations in place of the former weight_norm and spectral_norm."
            ) from error
        self._parameters = [one for one in self._module.parameters() if one.requires_grad]
        if not self._parameters:
            raise ArgumentError("the module has no parameter that requires a gradient.")
        places = {(one.dtype, one.device) for one in self._module.parameters()}
        self._dtype, self._device = next(iter(places))
        if len(places) > 1 or self._dtype not in TYPES:
            raise ArgumentError(
                "a module's parameters must all be float32, or all float64, on one device; got "
                f"{', '.join(sorted(f'{dtype} on {device}' for dtype, device in places))}. "
                "Pass module.float(), and module.to(device)."
            )
        held = isinstance(loss, torch.nn.Module)
        loss = copy.deepcopy(loss).to(self._device, self._dtype) if held else loss  # type: ignore[union-attr]
        self._loss = torch.nn.functional.cross_entropy if loss is None else loss
        self._optimizer = optimizer
        self._start = self._flat(self._parameters)
        self._known = dict[int, RowGradients]()

    @property
    def n_parameters(self) -> int:
        """All that require a gradient."""
        return len(self._start)

    @property
    def rounding(self) -> float:
        """Relative rounding of a number of the module's."""
        return float(torch.finfo(self._dtype).eps)

    @property
    def name(self) -> str:
        """Name that follows from the module, its first parameters, type, device, loss and optimizer."""
        parts = [described(one, torch.nn.Module) for one in (self._module, self._loss, self._optimizer)]
        what = [*parts, self._start.tobytes(), f"{self._dtype} {self._device}".encode()]
        return f"torch-{hashlib.sha256(b''.join(what)).hexdigest()[:16]}"

    def register(self) -> str:
        """Register the module as a model under its name; return the name."""
        if self.name not in MODELS:
            MODELS.add(self.name, self._of)
        return self.name

    def _of(self, n_features: int, n_classes: int) -> TorchTrainer:
        """Return this trainer, whose module takes so many features and gives a score for each class."""
        try:
            with torch.no_grad():
                scores = self._module(self._rows(np.zeros((2, n_features))))
        except Exception as error:
            raise ArgumentError(
                f"the torch module cannot take rows of {n_features} features: {one_line(error)}"
            ) from error
        shape = tuple(getattr(scores, "shape", ()))
        if shape != (2, n_classes):
            raise ArgumentError(
                f"the torch module must give a score for each class (n_classes={n_classes}): of 2 rows of "
                f"{n_features} features it gives an output of shape {shape}, not (2, {n_classes})."
            )
        return self

    @property
    def kind(self) -> str:
        """The module's layers and their sizes, as text in one line, with a hash of what is never trained."""
        layers, fixed = " ".join(repr(self._module).split()), fixed_numbers(self._module)
        return f"{layers} beside fixed numbers {hashlib.sha256(fixed).hexdigest()[:8]}" if fixed else layers

    @property
    def trained_by(self) -> str:
        """The loss and the optimizer as text in one line, each with a hash of what it computes."""
        own = self._loss is not torch.nn.functional.cross_entropy
        return f"{_called(self._loss) if own else 'cross-entropy'} and {_called(self._optimizer or 'SGD')}"

    @property
    def kept(self) -> str:
        """Values that the module and its loss hold now, such as counters of calls."""
        return " ".join(kept(one, torch.nn.Module) for one in (self._module, self._loss))

    @property
    def given(self) -> FloatArray:
        """The module's own parameters that are trained."""
        return self._start

    @staticmethod
    def _flat(tensors: Any) -> FloatArray:
        parts = torch.cat([one.detach().reshape(-1) for one in tensors])
        return np.array(parts.cpu().numpy(), dtype=np.float64)

    def _rows(self, features: FloatArray) -> Any:
        return torch.tensor(features, dtype=self._dtype, device=self._device)

    def _classes(self, labels: Labels) -> Any:
        return torch.tensor(labels, device=self._device)

    def _parts(self, flat: Any) -> list[Any]:
        """Return numbers in the shapes of the parameters."""
        parts = flat.split([one.numel() for one in self._parameters])
        return [part.reshape(one.shape) for part, one in zip(parts, self._parameters, strict=True)]

    def _set(self, parameters: FloatArray) -> Any:
        """Set the parameters; return them as one tensor."""
        flat = self._rows(parameters)
        with torch.no_grad():
            for one, part in zip(self._parameters, self._parts(flat), strict=True):
                one.copy_(part)
        return flat

    def initial(self, seed: int) -> FloatArray:
        """Return the module's parameters, with layers that can be reset drawn anew from the seed.

        They are drawn on the processor: the same on any device. What is never trained stays as it is.
        """
        self._set(self._start)
        drawn = copy.deepcopy(self._module).cpu()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for layer in drawn.modules():
                reset = getattr(layer, "reset_parameters", None)
                if callable(reset):
                    reset()
        return self._flat(one for one in drawn.parameters() if one.requires_grad)

    def _gradient(self, rows: Any, classes: Any) -> Any:
        loss = self._loss(self._module(rows), classes)
        return torch.autograd.grad(loss, self._parameters, allow_unused=True, materialize_grads=True)

    def gradient(self, parameters: FloatArray, features: FloatArray, labels: Labels) -> FloatArray:
        """Return the gradient of the mean loss."""
        self._set(parameters)
        return self._flat(self._gradient(self._rows(features), self._classes(labels)))

    def _step(self, own: Sequence[Any], learning_rate: float) -> Callable[[Sequence[Any]], None]:
        """Return what takes a step against gradients of parameters, with a state of its own."""
        if self._optimizer is None:

            def descend(gradients: Sequence[Any]) -> None:
                with torch.no_grad():
                    for one, gradient in zip(own, gradients, strict=True):
                        one.sub_(learning_rate * gradient)

            return descend
        optimizer = self._optimizer(own, lr=learning_rate)

        def step(gradients: Sequence[Any]) -> None:
            for one, gradient in zip(own, gradients, strict=True):
                one.grad = gradient
            optimizer.step()
            optimizer.zero_grad()

        return step

    def trained(
        self,
        start: FloatArray,
        features: FloatArray,
        labels: Labels,
        batches: Iterable[npt.NDArray[np.intp]],
        learning_rate: float,
    ) -> FloatArray:
        """Return the parameters after a step for each batch, as `TrainsItself` says."""
        before, step = self._set(start), self._step(self._parameters, learning_rate)
        rows, classes = self._rows(features), self._classes(labels)
        for batch in batches:
            own = torch.tensor(batch, device=self._device)
            step(self._gradient(rows[own], classes[own]))
        ends = (torch.cat([one.reshape(-1) for one in self._own]), before)
        # What the type of the module rounds off the start is no step.
        return np.asarray(start + np.subtract(*(one.cpu().numpy() for one in ends), dtype=np.float64))

    def stepping(self, start: FloatArray, learning_rate: float) -> Callable[[FloatArray], FloatArray] | None:
        """Return a step against a gradient, as `TrainsItself` says; None for SGD."""
        if self._optimizer is None:
            return None
        self._set(start)
        own = [one.detach().clone().requires_grad_() for one in self._parameters]
        step = self._step(own, learning_rate)

        def stepped(gradient: FloatArray) -> FloatArray:
            step(self._parts(self._rows(gradient)))
            return self._flat(own)

        return stepped

    def _each(self, scores: Any, labels: Any) -> Any:
        """Return the loss of each row by itself."""
        alone = torch.func.vmap(lambda score, label: self._loss(score[None], label[None]))
        return alone(scores, labels)

    def gradients(self, parameters: FloatArray, features: FloatArray, labels: Labels) -> Parts:
        """Return the parts of each row's own gradient, in the module's type (`RowGradients`).

        Raises:
            PrivacyError: a layer mixes rows, or torch knows no such gradients of it.
        """
        if not len(features):
            return [(np.zeros((0, self.n_parameters)),)]
        self._set(parameters)
        rows = self._rows(features)
        return self._of_rows(features.shape[1])(self._own, rows, self._given(rows, self._classes(labels)))

    def size(self, n_features: int) -> int:
        """Return how many rows a block has: where rows are long, calls cost less than places left empty."""
        own = self._of_rows(n_features)
        rows = min(MOST, max(LEAST, PRODUCTS // own.products), max(1, HELD // own.held))
        return 1 << (rows.bit_length() - 1)

    def of_blocks(self, parameters: FloatArray, n_features: int) -> OfBlock:
        """Return what computes the gradients of rows of blocks, as `TakesBlocks` says."""
        if not self._is_cross_entropy:
            self._set(parameters)
        of_rows, size = self._of_rows(n_features), self.size(n_features)
        found = of_rows.of_blocks(self._parts(self._rows(parameters)))
        most = max(1, HELD // (of_rows.held * size))

        def of_block(features: FloatArray, labels: Labels, places: npt.NDArray[np.intp]) -> Parts:
            each = blocks(places)
            several = [each[start : start + most] for start in range(0, len(each), most)]
            return joined([of_several(features, labels, places, one) for one in several])

        def of_several(
            features: FloatArray, labels: Labels, places: npt.NDArray[np.intp], several: Sequence[Any]
        ) -> Parts:
            order, ends = np.concatenate(several), [len(own) for own in several]
            at, classes = (
                torch.tensor(one[order], device=self._device).split(ends) for one in (places, labels)
            )
            return found(map(placed, self._rows(features[order]).split(ends), classes, at))

        def placed(own: Any, classes: Any, at: Any) -> tuple[Any, Any, Any]:
            rows = torch.zeros(size, n_features, dtype=self._dtype, device=self._device)
            labels = torch.zeros(size, dtype=torch.int64, device=self._device)
            rows[at], labels[at] = own, classes
            return rows, self._given(rows, labels), at

        return of_block

    def _given(self, rows: Any, classes: Any) -> Any:
        """Return what is given with rows: classes, or the gradient of a user's loss by their scores.

        It is computed here since a user's loss may not allow `torch.func.grad`; of each row alone, too.
        """
        if self._is_cross_entropy:
            return classes
        with torch.no_grad():
            scores = torch.func.vmap(lambda row: self._module(row[None])[0])(rows)
        scores.requires_grad_()
        with torch.enable_grad():
            return torch.autograd.grad(self._each(scores, classes).sum(), scores)[0]

    @property
    def _is_cross_entropy(self) -> bool:
        return self._loss is torch.nn.functional.cross_entropy

    @property
    def _own(self) -> list[Any]:
        return [one.detach() for one in self._parameters]

    def _of_rows(self, n_features: int) -> RowGradients:
        if n_features not in self._known:
            towards = _of_cross_entropy if self._is_cross_entropy else lambda _, given: given
            rows = self._rows(np.zeros((1, n_features)))
            self._known[n_features] = RowGradients(self._module, rows, towards)
        return self._known[n_features]

    def losses(self, parameters: FloatArray, features: FloatArray, labels: Labels) -> FloatArray:
        """Return each row's loss."""
        self._set(parameters)
        with torch.no_grad():
            found = self._each(self._module(self._rows(features)), self._classes(labels))
        return np.asarray(found.cpu().numpy(), dtype=np.float64)

    def predict(self, parameters: FloatArray, features: FloatArray) -> Labels:
        """Return the class of the highest score."""
        self._set(parameters)
        with torch.no_grad():
            scores = self._module(self._rows(features))
        return np.asarray(scores.argmax(dim=1).cpu().numpy(), dtype=np.int64)


def _of_cross_entropy(scores: Any, label: Any) -> Any:
    """Return the gradient of one row's cross-entropy by its scores."""
    own = torch.arange(len(scores), device=scores.device) == label
    return scores.softmax(dim=0) - own.to(scores.dtype)


def _called(thing: Any) -> str:
    if isinstance(thing, str):
        return thing
    inner = thing.func if isinstance(thing, functools.partial) else thing
    name = getattr(inner, "__name__", type(inner).__name__)
    return f"{name} {hashlib.sha256(described(thing, torch.nn.Module)).hexdigest()[:8]}"


def _check_layers(module: Any) -> None:
    """Check that all layers know their sizes, and that none computes statistics of its batches."""
    if any(map(torch.nn.parameter.is_lazy, module.parameters())):
        raise ArgumentError("the module has lazy layers, of no size yet: call it on a row first.")
    for name, layer in module.named_modules():
        batches = isinstance(layer, torch.nn.modules.batchnorm._BatchNorm)
        if batches or getattr(layer, "running_mean", None) is not None:
            instead = ModuleValidator.fix(copy.deepcopy(layer).train())
            raise ArgumentError(
                f"layer {name!r} of the module is {layer}, whose statistics of batches are of several rows; "
                f"take {instead}. opacus.validators.ModuleValidator.fix(module) does so."
            )
    drops = [
        one for one in module.modules() if isinstance(one, torch.nn.modules.dropout._DropoutNd) and one.p
    ]
    if drops:
        warnings.warn(
            f"{drops[0]} is off, since training must repeat; take an optimizer's weight decay instead.",
            stacklevel=2,
        )
