"""Any torch module and loss as a trainer. Only this module imports torch, and Opacus (extra `privfed[deep]`).

The module is given rows of flat features (n_rows, n_features), as float64: begin with `torch.nn.Unflatten`
where it wants images. It runs in evaluation mode, so that equal arguments give equal results: dropout is off.
A module that draws all the same, or carries one row into another one's gradient, is refused before a fit
(`privfed.deep.training.probing`).
Statistics over a batch (BatchNorm) are refused: they would carry one row into another one's gradient, and are
no parameters; take GroupNorm or LayerNorm. Rows' own gradients are those of Opacus' `GradSampleModule`.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from opacus import GradSampleModule
from opacus.validators import ModuleValidator

from privfed.core.values.domain import FloatArray
from privfed.deep.training.described import described
from privfed.deep.training.trainer import MODELS, Labels, one_line
from privfed.errors import ArgumentError, PrivacyError

Loss = Callable[[Any, Any], Any]
"""From a module's outputs (n, n_classes) and labels (n,) to the mean loss, a scalar tensor."""


class TorchTrainer:
    """A torch module and its loss.

    Args:
        module: from (n_rows, n_features) float64 to scores (n_rows, n_classes).
        loss: of scores and labels, as a mean over rows; None for the cross-entropy.

    Raises:
        ArgumentError: the module has buffers, or nothing to train.
    """

    def __init__(self, module: Any, loss: Loss | None = None) -> None:
        if not isinstance(module, torch.nn.Module):
            raise ArgumentError(
                f"model must be one of {', '.join(MODELS.names())}, or a torch module; got {module!r}.",
                parameters=["model"],
            )
        self._module = copy.deepcopy(module).double().eval()
        self._loss = torch.nn.functional.cross_entropy if loss is None else loss
        self._parameters = [one for one in self._module.parameters() if one.requires_grad]
        if any(True for _ in self._module.buffers()):
            raise ArgumentError(
                "the module has buffers, as BatchNorm has, which averages of parameters do not cover; take "
                "GroupNorm or LayerNorm, or buffers that are not registered."
            )
        if not self._parameters:
            raise ArgumentError("the module has no parameter that requires a gradient.")
        self._start = self._flat(self._parameters)
        self._with_rows: Any = None

    @property
    def n_parameters(self) -> int:
        """All that require a gradient."""
        return len(self._start)

    @property
    def name(self) -> str:
        """Name that follows from the module, its first parameters and its loss, code included."""
        module, loss = (described(one, torch.nn.Module) for one in (self._module, self._loss))
        what = module + self._start.tobytes() + loss
        return f"torch-{hashlib.sha256(what).hexdigest()[:16]}"

    def register(self) -> str:
        """Register the module as a model under its name; return the name."""
        if self.name not in MODELS:
            MODELS.add(self.name, self._of)
        return self.name

    def _of(self, n_features: int, n_classes: int) -> TorchTrainer:
        """Return this trainer, whose module takes so many features and gives a score for each class.

        Raises:
            ArgumentError: it does not.
        """
        try:
            with torch.no_grad():
                scores = self._module(torch.zeros(2, n_features, dtype=torch.float64))
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
        """The module's layers and their sizes, as text in one line; its parameters' values are not in it."""
        return " ".join(repr(self._module).split())

    @staticmethod
    def _flat(tensors: Any) -> FloatArray:
        parts = [one.detach().numpy().ravel() for one in tensors]
        return np.concatenate(parts).astype(np.float64)

    def _set(self, parameters: FloatArray) -> None:
        start = 0
        with torch.no_grad():
            for one in self._parameters:
                part = parameters[start : (start := start + one.numel())]
                one.copy_(torch.tensor(part).reshape(one.shape))

    def initial(self, seed: int) -> FloatArray:
        """Return the module's parameters, with layers that can be reset drawn anew from the seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._set(self._start)
            for layer in self._module.modules():
                reset = getattr(layer, "reset_parameters", None)
                if callable(reset):
                    reset()
        return self._flat(self._parameters)

    def gradient(self, parameters: FloatArray, features: FloatArray, labels: Labels) -> FloatArray:
        """Return the gradient of the mean loss."""
        self._set(parameters)
        loss = self._loss(self._module(torch.tensor(features)), torch.tensor(labels))
        found = torch.autograd.grad(loss, self._parameters, allow_unused=True, materialize_grads=True)
        return self._flat(found)

    def _each(self, scores: Any, labels: Any) -> Any:
        """Return the loss of each row by itself."""
        alone = torch.func.vmap(lambda score, label: self._loss(score[None], label[None]))
        return alone(scores, labels)

    def gradients(self, parameters: FloatArray, features: FloatArray, labels: Labels) -> FloatArray:
        """Return each row's own gradient.

        Raises:
            PrivacyError: Opacus knows no such gradients of this module.
        """
        self._set(parameters)
        if self._with_rows is None:
            self._with_rows = self._for_rows()
        return self._by_rows(self._with_rows, torch.tensor(features), torch.tensor(labels))

    def _for_rows(self) -> Any:
        twin = copy.deepcopy(self._module).train()
        errors = ModuleValidator.validate(twin, strict=False)
        if errors:
            raise PrivacyError(f"DP-SGD needs each row's own gradient, and Opacus has none: {errors[0]}")
        for layer in twin.modules():
            # Opacus looks at layers with parameters in training mode only; everything else stays as in
            # evaluation, so that a module that asks its own `training` before it draws does not draw. A layer
            # with parameters that does is refused (`privfed.deep.training.probing`).
            layer.training = any(one.requires_grad for one in layer.parameters(recurse=False))
        return GradSampleModule(twin, loss_reduction="sum")

    def _by_rows(self, module: Any, features: Any, labels: Any) -> FloatArray:
        with torch.no_grad():
            for mine, its in zip(self._module.parameters(), module.parameters(), strict=True):
                its.copy_(mine)
        module.zero_grad()
        if not len(features):
            return np.zeros((0, self.n_parameters))
        # Hooks on gradients warn where no input asks for one.
        self._each(module(features.requires_grad_()), labels).sum().backward()
        trained = [one for one in module.parameters() if one.requires_grad]
        return np.concatenate([self._of_rows(one, len(features)) for one in trained], axis=1)

    @staticmethod
    def _of_rows(parameter: Any, n_rows: int) -> FloatArray:
        """Return the rows' gradients of a parameter, zeros for one that nothing uses."""
        found = parameter.grad_sample
        if found is None:
            return np.zeros((n_rows, parameter.numel()))
        return np.asarray(found.detach().reshape(n_rows, -1).numpy())

    def losses(self, parameters: FloatArray, features: FloatArray, labels: Labels) -> FloatArray:
        """Return each row's loss."""
        self._set(parameters)
        with torch.no_grad():
            found = self._each(self._module(torch.tensor(features)), torch.tensor(labels))
        return np.asarray(found.numpy(), dtype=np.float64)

    def predict(self, parameters: FloatArray, features: FloatArray) -> Labels:
        """Return the class of the highest score."""
        self._set(parameters)
        with torch.no_grad():
            scores = self._module(torch.tensor(features))
        return np.asarray(scores.argmax(dim=1).numpy(), dtype=np.int64)
