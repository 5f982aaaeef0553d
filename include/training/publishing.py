"""Publishing the best skill of a run."""

import logging
from typing import TYPE_CHECKING

from include.core.gate import GateDecision
from include.core.paired import interval
from include.core.provenance import LinesOfSkill
from include.core.scoring import Evaluation
from include.core.state import Measured
from include.core.types import Split, Value
from include.training.evaluation import measured
from include.training.run import TrainingRun

if TYPE_CHECKING:
    from include.store.artifacts import MeasuredScore, Provenance, SplitScores
    from include.store.objects import ObjectStore

log = logging.getLogger(__name__)


class Publication(Value):
    """What a run published."""

    version: str
    sha256: str
    key: str
    """Address of best_skill.md."""
    created: bool
    """False if the same skill was the champion already."""


def publish_best(run: TrainingRun, artifacts: "ObjectStore") -> Publication | None:
    """Publish the best skill; None if no candidate was better than the seed, or the run was stopped before its end.

    Raises:
        Conflict: another publisher moved the champion meanwhile.
    """
    from include.store.artifacts import ArtifactStore
    from include.store.keys import ArtifactKeys

    final = run.state(run.timeline[-1])
    if final.stopped:
        log.warning("the run was stopped, so it publishes nothing by itself: %s", final.stopped)
        return None
    if final.best.version == 0:
        log.info("no candidate was better than the seed skill, so nothing is published")
        return None
    config = run.config
    keys = ArtifactKeys(config.storage.prefix, run.ref.benchmark, str(config.model.target))
    skill = run.skill(final.best.version)
    published = ArtifactStore(artifacts, keys).publish(skill.text, _provenance(run, final.best))
    log.info("%s %s", "published" if published.created else "already the champion:", published.version)
    return Publication(
        version=published.version,
        sha256=published.sha256,
        key=artifacts.address(published.key),
        created=published.created,
    )


def _provenance(run: TrainingRun, best: Measured) -> "Provenance":
    from include.store.artifacts import Provenance
    from include.store.manifest import DataManifest

    record, config = run.record, run.config
    manifest = run.store.get_model(run.keys.data_manifest, DataManifest)
    return Provenance(
        run=record.run,
        config=config.model_dump(mode="json"),
        models={"target": str(config.model.target), "optimizer": str(config.model.optimizer)},
        harness=config.model.harness,
        data_fingerprints={split: part.fingerprint for split, part in manifest.splits.items()},
        seed_scores=_scores(run, run.state(run.timeline[0]).best),
        best_scores=_scores(run, best),
        gate_history=tuple(
            {"moment": moment.name}
            | run.store.get_model(run.keys.moment(moment).gate, GateDecision).model_dump(mode="json")
            for moment in run.timeline[1:-1]
        ),
        lines=run.store.get_model(run.keys.line_origins(best.version), LinesOfSkill).lines,
    )


def _scores(run: TrainingRun, skill: Measured) -> "SplitScores":
    from include.store.artifacts import SplitScores

    tested = measured(run, Split.TEST, run.skill(skill.version)) if run.config.evaluation.eval_test else None
    return SplitScores(val=_measured(run, skill.evaluation), test=_measured(run, tested))


def _measured(run: TrainingRun, evaluation: Evaluation | None) -> "MeasuredScore | None":
    from include.store.artifacts import MeasuredScore

    if evaluation is None or not evaluation.scores:
        return None
    low, high = interval(evaluation, run.config.evaluation)
    return MeasuredScore(
        hard=evaluation.mean("hard"), soft=evaluation.mean("soft"), items=len(evaluation.scores), low=low, high=high
    )
