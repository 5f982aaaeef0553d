"""Judging changes of repositories by tests, in a second container of the item's own image."""

from collections.abc import Callable, Mapping

from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.core.protocols import JudgesRepository
from skillopt_airflow.core.repository_tests import PATCH_FILE, RepositoryTests, TestedRepository
from skillopt_airflow.core.resource_groups import SandboxGroup
from skillopt_airflow.core.types import Item, Rollout, Score, Status, Trajectory

RunTests = Callable[[Item, RepositoryTests], TestedRepository]


def judged_repository(
    benchmark: JudgesRepository, item: Item, trajectory: Trajectory, produced: Mapping[str, bytes], run_tests: RunTests
) -> Rollout:
    """Return the rollout with the change as its answer; a `judge_error` where the tests could not be run.

    It is a `sandbox_error` where the answer cannot hold the change, which is to be made again then.

    Args:
        benchmark: says which tests judge.
        item: the exercise.
        trajectory: one that has a score.
        produced: what the target left; without it, when it is judged again, the change is the trajectory's answer.
        run_tests: runs them.
    """
    # What is stored is Unicode, but a file of another encoding is only changed by its own bytes.
    left = produced.get(PATCH_FILE, trajectory.answer.encode())
    patch, exact = (left.decode(errors=errors) for errors in ("replace", "surrogateescape"))
    answered = trajectory.model_copy(update={"answer": patch})
    wanted = benchmark.tests(item, exact)
    if isinstance(wanted, Score):
        return Rollout(trajectory=answered, score=wanted)
    try:
        score = benchmark.score_tests(item, patch, run_tests(item, wanted))
    except SandboxError as error:
        # From what is stored, a judge would judge another change.
        again = Status.JUDGE_ERROR if patch == exact else Status.SANDBOX_ERROR
        failed = answered.model_copy(update={"status": again, "error": str(error)[:500]})
        return Rollout(trajectory=failed, score=None)
    return Rollout(trajectory=answered, score=score)


def engine_test_runner(
    limits: SandboxGroup,
    base: str,
    labels: Mapping[str, str],
    contents: Callable[[Item], Mapping[str, bytes]],
    docker_url: str | None,
) -> RunTests:
    """Return what runs tests on the engine of the sandboxes.

    Args:
        limits: those of each container.
        base: the run's sandbox image.
        labels: of the task.
        contents: reads the files that an item's image is built from.
        docker_url: address of the worker's own engine; that of its environment when None.
    """

    def run(item: Item, wanted: RepositoryTests) -> TestedRepository:
        from skillopt_airflow.sandbox import docker_connection
        from skillopt_airflow.sandbox.item_images import ItemImages
        from skillopt_airflow.sandbox.judge_container import JudgeContainer

        engine = docker_connection.found(limits.docker_conn_id, docker_url)
        with engine.opened() as client, docker_connection.judged(engine.url):
            image = ItemImages(client, base, limits, contents).judging(item)
            return JudgeContainer(client, limits, {**labels, "part": "judge"}).run(item, image, wanted)

    return run
