"""Gradients of torch modules' rows in blocks: of layers that are followed, by operations recorded once."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra deep: make install-deep")
pytest.importorskip("opacus", reason="needs the extra deep: make install-deep")

from privfed.deep.training.rows import RowGradients  # noqa: E402
from privfed.deep.training.torch_trainer import HELD, TorchTrainer  # noqa: E402
from privfed.deep.training.trainer import whole  # noqa: E402


def convolves(**options: Any) -> Any:
    """A module of two convolutions, the first with options, and a linear layer."""
    first = torch.nn.Conv2d(1, 4, 3, **options)
    return torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, 8, 8)),
        first,
        torch.nn.Tanh(),
        torch.nn.Conv2d(4, 2, 2),
        torch.nn.AdaptiveAvgPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(8, 3),
    ).double()


def perceptron() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(64, 30), torch.nn.Tanh(), torch.nn.Linear(30, 3))


def in_place() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(64, 30), torch.nn.ReLU(inplace=True), torch.nn.Linear(30, 3))


def frozen() -> Any:
    module = convolves()
    module[1].bias.requires_grad_(False)
    return module


def squared(scores: Any, labels: Any) -> Any:
    return ((scores - torch.nn.functional.one_hot(labels, 3)) ** 2).mean()


def drawn(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    return rng.uniform(size=(n, 64)), rng.integers(0, 3, n)


@pytest.mark.parametrize(
    "module",
    [
        convolves(),
        convolves(stride=2, padding=1, bias=False),
        convolves(dilation=(2, 1), padding=(0, 2)),
        convolves(padding="same"),
        convolves(padding=1, padding_mode="circular"),
        frozen(),
    ],
)
def test_gradients_of_convolutions_are_those_of_each_row_alone(module: Any) -> None:
    trainer, (rows, labels) = TorchTrainer(module), drawn(5)
    at = trainer.initial(0)
    alone = [trainer.gradient(at, rows[i : i + 1], labels[i : i + 1]) for i in range(5)]
    assert np.allclose(whole(trainer.gradients(at, rows, labels)), alone, atol=1e-12)


@pytest.mark.parametrize("loss", [None, squared])
@pytest.mark.parametrize("module", [perceptron(), in_place(), convolves(padding=1), convolves().float()])
def test_what_blocks_record_computes_what_rows_do_to_the_last_bit(module: Any, loss: Any) -> None:
    trainer, (rows, labels), places = TorchTrainer(module, loss), drawn(3), np.array([3, 0, 11])
    size = trainer.size(64)
    block, classes = np.zeros((size, 64)), np.zeros(size, dtype=np.int64)
    block[places], classes[places] = rows, labels
    for seed in (0, 1):
        at = trainer.initial(seed)
        found = trainer.of_blocks(at, 64)(rows, labels, places)
        expected = [tuple(one[places] for one in part) for part in trainer.gradients(at, block, classes)]
        assert [len(part) for part in found] == [len(part) for part in expected]
        assert all(
            np.array_equal(one, other)
            for part, same in zip(found, expected, strict=True)
            for one, other in zip(part, same, strict=True)
        )
    assert isinstance(trainer._of_rows(64)._recorded[(size, 64)].__self__, torch.fx.GraphModule)


@pytest.mark.parametrize("loss", [None, squared])
@pytest.mark.parametrize("module", [perceptron(), convolves(padding=1), convolves().float()])
def test_rows_of_one_place_come_block_after_block_as_each_alone(module: Any, loss: Any) -> None:
    trainer, (rows, labels), places = TorchTrainer(module, loss), drawn(5), np.array([3, 0, 3, 11, 3])
    of_block, order = trainer.of_blocks(trainer.initial(0), 64), np.array([0, 1, 3, 2, 4])
    alone = [whole(of_block(rows[i : i + 1], labels[i : i + 1], places[i : i + 1]))[0] for i in order]
    assert np.array_equal(whole(of_block(rows, labels, places)), alone)


def test_what_changes_from_call_to_call_is_not_recorded() -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls, self.layer = 0, torch.nn.Linear(64, 3)

        def forward(self, rows: Any) -> Any:
            self.calls += 1
            return self.layer(rows) * self.calls

    trainer, (rows, labels) = TorchTrainer(Counting()), drawn(4)
    of_block = trainer.of_blocks(trainer.initial(0), 64)
    one, other = (whole(of_block(rows, labels, np.arange(4))) for _ in range(2))
    assert not np.array_equal(one, other)


def test_a_block_has_fewer_places_where_rows_take_longer() -> None:
    large = torch.nn.Sequential(torch.nn.Linear(784, 200), torch.nn.ReLU(), torch.nn.Linear(200, 10))
    sizes = [TorchTrainer(module).size(n) for module, n in ((torch.nn.Linear(20, 3), 20), (large, 784))]
    assert sizes == [128, 32]


def test_rows_of_several_blocks_hold_no_more_numbers_than_one_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of 256 rows of two convolutions of small images took a gigabyte."""
    held, parts = list[int](), RowGradients._parts

    def counting(rows: RowGradients, computed: Any) -> Any:
        held.append(len(computed[0]) * rows.held)
        return parts(rows, computed)

    monkeypatch.setattr(RowGradients, "_parts", counting)
    layers = torch.nn.Unflatten(1, (1, 60, 60)), torch.nn.Conv2d(1, 12, 3), torch.nn.Flatten()
    trainer = TorchTrainer(torch.nn.Sequential(*layers, torch.nn.Linear(12 * 58 * 58, 2)))
    n = 2 * trainer.size(3600)
    of_block, rows = trainer.of_blocks(trainer.initial(0), 3600), np.zeros((n, 3600))
    of_block(rows, np.zeros(n, dtype=np.int64), np.arange(n) // 2)
    assert len(held) > 1 and max(held) <= HELD
