"""Recorded ad hoc runs for tests, without training."""

from pathlib import Path

from fedrepro import data, methods
from fedrepro.records import record as records
from fedrepro.records.config import RunConfig
from fedrepro.results import chosen
from fedrepro.training.identity import identity

PROVENANCE = {"command": "", "versions": {"torch": "2"}, "device": "cpu", "threads": 1, "precision": "fp32"}
PROVENANCE |= {"started": "2026-01-01", "finished": "2026-01-01", "commit": None}
SGD = {"optimiser": "sgd", "lr": 0.01, "batch": 64, "net": "cnn"}


def run(name, accuracies, method="fedavg", hyper=SGD, dataset="digits-plain", **settings):
    """A recorded run without training: test accuracy by seed, None where it diverged; curves rise to it in 3 rounds."""
    config = RunConfig(
        method=method, dataset=dataset, hyper=hyper, seeds=tuple(accuracies), **({"rounds": 3} | settings)
    )
    seeds, curves = {}, {}
    for seed, value in accuracies.items():
        end = {"status": "diverged" if value is None else "finished", "rounds": 3, "seconds": 1.0}
        metrics = {} if value is None else {"train_accuracy": 0.9, "test_accuracy": value, "test_loss": 1 - value}
        seeds[seed] = end | {"metrics": metrics, "provenance": PROVENANCE}
        curves[seed] = [
            (round, name, level * round / 3)
            for round in (1, 2, 3)
            for name, level in metrics.items()
            if round == 3 or name != "test_loss"
        ]
    described = {key: value for key, value in data.describe(dataset).items() if key != "fingerprint"}
    fields = {
        **{"paper": None, "run": None, "budget": "ad hoc", "config": config, "identity": identity(config)},
        **{"resolved": methods.resolved(method, hyper), "seeds": seeds},
        "data": described | {"facts": {str(seed): {} for seed in seeds}},
    }
    records.write(Path("runs/adhoc") / name, fields, curves)
    return chosen.run(name)
