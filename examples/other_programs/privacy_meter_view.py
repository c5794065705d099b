"""Lets Privacy Meter (1.0.1) attack what a run of privfed released, from the file of a view.

    model.transcript_.view("observer")  ->  attacks.view_to_file(view, "view.npz")
    python examples/other_programs/privacy_meter_view.py view.npz rows.npz

`rows.npz` has float64 arrays `members` (a part of the rows of the fit), `others` (as many that were not in
it) and `public` (rows of the same kind, by which the threshold is set). The file is read with NumPy alone.
The signal of a row is its squared distance to the nearest released center. privfed's own `Membership` reads
the same file beside it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

Rows = dict[str, np.ndarray]


def released(path: Path) -> tuple[dict[str, Any], np.ndarray]:
    """Return what a view's file says, and the centers that were released."""
    with np.load(path, allow_pickle=False) as file:
        return json.loads(str(file["view"])), np.asarray(file["result/centers"])


def signals(centers: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return each row's squared distance to the nearest center."""
    return np.asarray(((rows[:, None] - centers) ** 2).sum(axis=2).min(axis=1))


def by_privacy_meter(centers: np.ndarray, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Return shares of members and of others that its population attack calls members, for each threshold."""
    from privacy_meter.audit import Audit, MetricEnum
    from privacy_meter.constants import InferenceGame
    from privacy_meter.dataset import Dataset
    from privacy_meter.information_source import InformationSource
    from privacy_meter.model import Model

    class Centers(Model):
        """Released centers; Privacy Meter asks them for the loss of rows."""

        def get_loss(self, batch_samples: Any, batch_labels: Any, per_point: bool = True) -> Any:
            return signals(self.model_obj, batch_samples)

        def get_logits(self, batch_samples: Any) -> Any:
            raise NotImplementedError

        get_grad = get_intermediate_outputs = get_logits

    def source(**splits: np.ndarray) -> Any:
        named = {name: {"x": one, "y": np.zeros(len(one))} for name, one in splits.items()}
        data = Dataset(data_dict=named, default_input="x", default_output="y")
        return InformationSource(models=[Centers(centers, None)], datasets=[data])

    with tempfile.TemporaryDirectory() as logs:
        audit = Audit(
            metrics=MetricEnum.POPULATION,
            inference_game_type=InferenceGame.PRIVACY_LOSS_MODEL,
            target_info_sources=source(train=rows["members"], test=rows["others"]),
            reference_info_sources=source(train=rows["public"]),
            logs_directory_names=logs,
        )
        audit.prepare()
        found = audit.run()[0]
    result = found[0] if isinstance(found, list) else found
    n = len(rows["members"])
    called = np.asarray(result.predicted_labels, dtype=np.float64)
    return called[:, :n].mean(axis=1), called[:, n:].mean(axis=1)


def by_privfed(path: Path, rows: Rows) -> float:
    """Return the area under the curve of privfed's own attack on the same file."""
    from privfed import attacks

    candidates = np.concatenate([rows["members"], rows["others"]])
    attack = attacks.Membership(candidates)
    found = attack.run(
        attacks.view_from_file(path), attacks.Prior(sample=rows["public"]), np.random.default_rng(0)
    )
    if isinstance(found, attacks.NotRun):
        return 0.5
    scores = np.asarray(found.scores)
    higher = scores[: len(rows["members"]), None] - scores[len(rows["members"]) :]
    return float(np.mean((higher > 0) + 0.5 * (higher == 0)))


def main(view: str, table: str) -> None:
    """Print what both find."""
    with np.load(table) as file:
        rows = {name: np.asarray(file[name], dtype=np.float64) for name in ("members", "others", "public")}
    said, centers = released(Path(view))
    right, wrong = by_privacy_meter(centers, rows)
    order = np.lexsort((right, wrong))
    wrong, right = np.r_[0.0, wrong[order], 1.0], np.r_[0.0, right[order], 1.0]
    print(f"{len(said['clients'])} clients; {len(centers)} released centers")
    print(f"Privacy Meter, distances to centers: AUC {np.trapezoid(right, wrong):.2f}")
    print(f"privfed's Membership, the same file: AUC {by_privfed(Path(view), rows):.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
