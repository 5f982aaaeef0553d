"""A training without Airflow: the stages in the order of the DAGs, with the names of their tasks."""

from collections.abc import Callable, Sequence
from typing import Any

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.run.history import Publication
from skillopt_airflow.core.run.state import RunState
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.training.champion.publication import gate_publication, plan_publication, publish_best
from skillopt_airflow.training.prepare.preflight import preflight
from skillopt_airflow.training.prepare.preparation import prepare_training
from skillopt_airflow.training.report.reporting import write_report
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.step import epoch_end, seed_and_final, steps
from skillopt_airflow.training.step.candidate import gate
from skillopt_airflow.training.step.steps import plan_ahead


class TrainingLoop:
    """Trains a run in this process; a second call resumes from stored results.

    Args:
        run: the run.
        config: the complete configuration.
        roll_out: runs the chunks of a plan.
    """

    def __init__(self, run: TrainingRun, config: TrainConfig, roll_out: Callable[[Sequence[JsonObject]], None]) -> None:
        self.run, self.config, self._roll_out = run, config, roll_out

    def __call__(self) -> RunState:
        """Prepare, train, test, and report; return the final state."""
        run = self.run
        seed = self.task("prepare", lambda: prepare_training(run, self.config))
        self.task("preflight", lambda: preflight(run, self._roll_out))
        self._rollouts("score_seed", seed)
        self.task("start", lambda: seed_and_final.start(run))
        self._rollouts("test_seed", self.task("plan_seed_test", lambda: seed_and_final.seed_test_plan(run)))
        for moment in run.timeline[1:-1]:
            if run.stopped():
                break
            if moment.kind == "step":
                self._step(moment)
            elif moment.kind == "slow_update":
                self._slow_update(moment)
            else:
                self._speculate(moment)
                self._evaluate_and_gate(moment, self._plan(moment, "meta_reflect", epoch_end.meta_reflect))
        self._rollouts("evaluate_last", self.task("measure_last", lambda: seed_and_final.last_plan(run)))
        self._rollouts("test", self.task("finish", lambda: seed_and_final.finish(run)))
        self.task("report", lambda: write_report(run) and None)
        return run.state(run.timeline[-1])

    def publish(self, name: str) -> Publication | str:
        """Publish the best skill; return the reason if the publish gate withholds it.

        Raises:
            Conflict: another publisher moved the champion.
        """
        run = self.run
        rules = run.config.publishing
        self._rollouts(
            "publication/measure",
            self.task("publication/plan_publication", lambda: plan_publication(run, run.published, name, rules)),
        )
        withheld: str = self.task("publication/gate_publication", lambda: gate_publication(run, name))
        if withheld:
            write_report(run, withheld=withheld)
            return withheld
        published: Publication = self.task("publication/publish", lambda: publish_best(run, run.published, name))
        write_report(run, published)
        return published

    def task(self, name: str, work: Callable[[], Any]) -> Any:
        return work()

    def _step(self, moment: Moment) -> None:
        self._rollouts(f"{moment.name}/rollout", self._plan(moment, "plan", steps.rollout))
        self._speculate(moment)
        self._evaluate_and_gate(moment, self._plan(moment, "update", steps.update))

    def _slow_update(self, moment: Moment) -> None:
        self._speculate(moment)
        self._rollouts(f"{moment.name}/rollout", self._plan(moment, "compare_epochs", epoch_end.compare_epochs))
        self._evaluate_and_gate(moment, self._plan(moment, "slow_update", epoch_end.slow_update))

    def _speculate(self, moment: Moment) -> None:
        self.task(f"{moment.name}/speculate", lambda: self._roll_out(plan_ahead(self.run, moment)))

    def _evaluate_and_gate(self, moment: Moment, planned: Sequence[JsonObject]) -> None:
        self._rollouts(f"{moment.name}/evaluate", planned)
        self.task(f"{moment.name}/gate", lambda: gate(self.run, moment) and None)

    def _plan(self, moment: Moment, stage: str, plan: Callable[[TrainingRun, Moment], list[JsonObject]]) -> Any:
        return self.task(f"{moment.name}/{stage}", lambda: plan(self.run, moment))

    def _rollouts(self, name: str, chunks: Sequence[JsonObject]) -> None:
        self.task(name, lambda: self._roll_out(chunks))
