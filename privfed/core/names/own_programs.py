"""The registry of what an agreement may name to run: algorithms, their parts, and metrics.

An agreement never makes a client import a module that it names: what is not registered is not run. Packages
add theirs by entry points of `privfed.algorithms`, other code by `ALGORITHMS.add(name, kind)`.
"""

from __future__ import annotations

from typing import Any

from privfed.core.names.registry import Registry

ALGORITHMS: Registry[type[Any]] = Registry(
    "algorithm",
    "privfed.algorithms",
    {
        "AskedMetric": "privfed.metrics.phases:AskedMetric",
        "Averaging": "privfed.deep.algorithms.averaging:Averaging",
        "BipartitionRule": "privfed.deep.algorithms.rules:BipartitionRule",
        "FeatureMoments": "privfed.questions.moments:FeatureMoments",
        "FeatureSummary": "privfed.algorithms.summary:FeatureSummary",
        "FederatedKMeans": "privfed.algorithms.local_centers.fkm:FederatedKMeans",
        "FederatedMiniBatch": "privfed.algorithms.kmeans.minibatch:FederatedMiniBatch",
        "FixedKMeans": "privfed.algorithms.private.fixed:FixedKMeans",
        "FuzzyCMeans": "privfed.algorithms.fuzzy.fuzzy:FuzzyCMeans",
        "FuzzyStep": "privfed.estimators.private_algorithms:FuzzyStep",
        "KeptStart": "privfed.algorithms.starts.kept:KeptStart",
        "LloydBaseline": "privfed.algorithms.private.baselines:LloydBaseline",
        "MixtureLearning": "privfed.deep.algorithms.mixing:MixtureLearning",
        "OneShotKMeans": "privfed.algorithms.local_centers.kfed:OneShotKMeans",
        "OwnSteps": "privfed.estimators.private_algorithms:OwnSteps",
        "Plan": "privfed.deep.algorithms.plan:Plan",
        "PrivateEvolution": "privfed.algorithms.private.evolution:PrivateEvolution",
        "PrivateKMeans": "privfed.algorithms.private.kmeans:PrivateKMeans",
        "PrivateMoments": "privfed.algorithms.private.moments:PrivateMoments",
        "PrivateSelection": "privfed.algorithms.private.selection:PrivateSelection",
        "Propagation": "privfed.deep.clustering.propagation:Propagation",
        "PropagationRule": "privfed.deep.algorithms.rules:PropagationRule",
        "RegroupedLearning": "privfed.deep.algorithms.regrouped:RegroupedLearning",
        "SplitRule": "privfed.deep.clustering.bipartition:SplitRule",
        "Steps": "privfed.algorithms.private.kmeans:Steps",
        "WeightedKMeans": "privfed.algorithms.kmeans.wf_kmeans:WeightedKMeans",
    },
)
"""Classes that an agreement may name: dataclasses of plain values, arrays, questions and each other."""
