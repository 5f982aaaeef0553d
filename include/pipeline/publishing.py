"""Publishing the best skill of a run."""

import logging
from typing import TYPE_CHECKING

from include.core.gate import GateDecision
from include.core.scoring import Evaluation
from include.core.types import Split, Value
from include.pipeline.run import TrainingRun, object_store

if TYPE_CHECKING:
    from include.store.artifacts import MeasuredScore

log = logging.getLogger(__name__)


class Publication(Value):
    """What a run published."""

    version: str
    sha256: str
    key: str
    """Address of best_skill.md."""
    created: bool
    """False if the same skill was the champion already."""


def publish_best(run: TrainingRun) -> Publication | None:
    """Publish the best skill; None if no candidate was better than the seed.

    Raises:
        Conflict: another publisher moved the champion meanwhile.
    """
    from include.store.artifacts import ArtifactStore, Provenance, SplitScores
    from include.store.keys import ArtifactKeys
    from include.store.manifest import DataManifest

    record, config = run.record, run.config
    end, start = run.state(record.total_steps), run.state(0)
    if end.best.version == 0:
        log.info("no candidate was better than the seed skill, so nothing is published")
        return None
    skill = run.skill(end.best.version)
    manifest = run.store.get_model(run.keys.data_manifest, DataManifest)
    steps = range(1, record.total_steps + 1)
    decisions = [run.store.get_model(run.keys.step(step).gate, GateDecision) for step in steps]
    test = {
        version: run.evaluation(Split.TEST, run.skill(version)) if config.evaluation.eval_test else None
        for version in (0, end.best.version)
    }
    provenance = Provenance(
        run=record.run,
        config=config.model_dump(mode="json"),
        models={"target": str(config.model.target), "optimizer": str(config.model.optimizer)},
        harness=config.model.harness,
        data_fingerprints={split: part.fingerprint for split, part in manifest.splits.items()},
        seed_scores=SplitScores(val=_measured(start.best.evaluation), test=_measured(test[0])),
        best_scores=SplitScores(val=_measured(end.best.evaluation), test=_measured(test[end.best.version])),
        gate_history=tuple(
            {"step": step} | decision.model_dump(mode="json") for step, decision in zip(steps, decisions, strict=True)
        ),
    )
    store = object_store(config.storage, config.storage.artifact_bucket)
    keys = ArtifactKeys(config.storage.prefix, record.benchmark, str(config.model.target))
    published = ArtifactStore(store, keys).publish(skill.text, provenance)
    log.info("%s %s", "published" if published.created else "already the champion:", published.version)
    return Publication(
        version=published.version,
        sha256=published.sha256,
        key=store.address(published.key),
        created=published.created,
    )


def _measured(evaluation: Evaluation | None) -> "MeasuredScore | None":
    from include.store.artifacts import MeasuredScore

    if evaluation is None or not evaluation.scores:
        return None
    return MeasuredScore(hard=evaluation.mean("hard"), soft=evaluation.mean("soft"), items=len(evaluation.scores))
