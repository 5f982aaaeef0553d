import logging
from pathlib import Path
from typing import Any

import pytest

from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.density import CHARS_PER_TOKEN
from skillopt_airflow.core.errors import ConfigError, EngineUnavailable, ModelConnectionError, SkillOptError
from skillopt_airflow.core.shortening import MOST_TOLD_CHARS
from skillopt_airflow.core.types import Split, Status
from skillopt_airflow.store.artifacts import ArtifactStore
from skillopt_airflow.store.keys import ArtifactKeys
from skillopt_airflow.training.deployment_file import VARIABLE
from skillopt_airflow.training.estimate import ROLLOUT_TOKENS, TOLD_CHARS
from skillopt_airflow.training.matrix_cells import in_cell
from skillopt_airflow.training.matrix_estimate import estimate_matrix, open_rollouts
from skillopt_airflow.training.rollout_plan import planned
from skillopt_airflow.training.transfer_plan import MOST_CHUNKS, prepare_transfer
from skillopt_airflow.training.workload import ChunkWorkload
from tests.store.test_artifacts import provenance
from tests.training.transfer_training import BETTER, OTHER, TARGET, TransferTraining, asked, of_cell

LOGGER = "skillopt_airflow.training.transfer_plan"


def logged(caplog: pytest.LogCaptureFixture, training: TransferTraining, **changes: Any) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.INFO, LOGGER):
        training.plan(asked(**changes))
    # What else is logged depends on what other tests left set.
    return [message for name, _, message in caplog.record_tuples if name == LOGGER]


def test_every_skill_runs_on_the_same_items_in_every_cell() -> None:
    training = TransferTraining.of()
    refs = training.plan(asked(harnesses=("chat", "tools")))
    chunks = [planned(training.run, ref)[1] for ref in refs]
    items = {(chunk.cell, chunk.skill, chunk.draw): set[str]() for chunk in chunks}
    for chunk in chunks:
        items[chunk.cell, chunk.skill, chunk.draw] |= set(chunk.item_ids)
    assert len(items) == 4 * 2
    assert list(items.values()) == [{item.id for item in training.run.item_refs(Split.TEST)}] * 8
    work = [ChunkWorkload(training.run, ref, "run") for ref in refs]
    assert {(str(one.run.config.model.target), one.run.config.model.harness) for one in work} == {
        (target, harness) for target in (TARGET, OTHER) for harness in ("chat", "tools")
    }
    # Together, those that run at the same time have the run's calls in flight.
    lanes = training.config.sandbox.max_containers
    assert {one.concurrency for one in work} == {training.config.model.concurrency // lanes}


def test_all_that_is_named_wrongly_is_told_at_once() -> None:
    training = TransferTraining.of(
        budget__max_usd=1.0, budget__prices={TARGET: {"input": 1, "output": 1}}, model__judge="openai-chat:judge"
    )

    def config_of(target: str, harness: str) -> TrainConfig:
        if target == "nowhere":
            raise ModelConnectionError("connection skillopt_target: model 'nowhere' should be written as a provider")
        if harness == "codex":
            raise EngineUnavailable("no Docker engine answers")
        return of_cell(training.config, target, harness)

    request = asked(
        skills=("seed", "champion", "v0007-0123456789ab", "sed"),
        targets=(TARGET, OTHER, "nowhere"),
        harnesses=("chat", "codex"),
    )
    with pytest.raises(SkillOptError) as raised:
        prepare_transfer(training.run, training.config, request, config_of, 1024)
    told = str(raised.value).splitlines()
    assert [line.partition(":")[0] for line in told] == [
        "skill champion",
        "nothing is stored as s3",
        "skill 'sed'",
        "budget.max_usd = 1",
        "connection skillopt_target",
        "budget.max_usd = 1",
    ]
    assert f"the target {OTHER};" in told[3]
    assert "the judge openai-chat:judge;" in told[5]
    # What may pass is not told beside what stays.
    assert not isinstance(raised.value, EngineUnavailable)
    assert not training.store.objects


def test_skills_are_found_by_name_and_one_that_may_not_be_named_is_not_even_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = TransferTraining.of()
    artifacts = ArtifactStore(training.models.artifacts, ArtifactKeys("", "searchqa", TARGET))
    published = artifacts.publish(BETTER, provenance("run"), None)
    training.plan(asked(skills=("champion", published.version, "# A text\n\nof two lines\n"), targets=(OTHER,)))
    texts = [training.run.skill(version).text for version in range(3)]
    assert texts == [BETTER, BETTER, "# A text\n\nof two lines\n"]
    (tmp_path / "deployment.yaml").write_text("allowed: {data: ['s3://ours/*']}\n")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "deployment.yaml"))
    # In this process, there is no client that could read it.
    with pytest.raises(ConfigError, match=r"^skills\[1\] = 's3://theirs/skill.md': .*\nskill 'sed'"):
        TransferTraining.of().plan(asked(skills=("seed", "s3://theirs/skill.md", "sed")))


@pytest.mark.parametrize(
    ("knobs", "targets", "chunks"),
    [
        ({}, 2, 4),
        # So few parts that no container is idle in the last round.
        ({}, 3, 12),
        # More than there is room for, so some are.
        ({"evaluation__draws": 49}, 3, 294),
        ({"evaluation__draws": 50}, 3, None),
        ({"sandbox__items_per_container": 1}, 20, None),
    ],
)
def test_a_run_has_few_tasks(knobs: dict[str, Any], targets: int, chunks: int | None) -> None:
    training = TransferTraining.of(**knobs)
    request = asked(targets=tuple(f"openai-chat:{place}" for place in range(targets)))
    if chunks is not None:
        assert len(training.plan(request)) == chunks <= MOST_CHUNKS
        return
    with pytest.raises(ConfigError, match="chunks, and a run has room for 298"):
        training.plan(request)
    # Nothing of the run is there, and nothing was asked.
    assert not [key for key in training.store.objects if key.endswith("config.json")]


def test_a_plan_keeps_to_airflows_limit_the_splits_and_the_data_limit() -> None:
    with pytest.raises(ConfigError, match="are 4 chunks"):
        TransferTraining.of().plan(asked(), most=3)
    with pytest.raises(ConfigError, match=r"^split = publish"):
        TransferTraining.of().plan(asked(split=Split.PUBLISH))
    # The limit may be lower than what evaluations need.
    training = TransferTraining.of(data__limit=5)
    training.plan(asked())
    assert len(training.run.item_refs(Split.TEST)) == 5


def test_the_whole_matrix_is_estimated_before_its_first_call(caplog: pytest.LogCaptureFixture) -> None:
    prices = {TARGET: {"input": 1.0, "output": 10.0}, OTHER: {"input": 2.0, "output": 20.0}}
    training = TransferTraining.of(budget__prices=prices, budget__max_tokens=10, model__max_turns=3)
    first, one, other, together, limit = logged(caplog, training, harnesses=("chat",))
    assert first == "estimate for the whole matrix, at most, without calls that are tried again:"
    for line, target in ((one, TARGET), (other, OTHER)):
        assert line.startswith(f"  {target}, chat: 24 of 24 rollouts are to be made, 72 calls, ")
        assert line.endswith(" US dollars")
    assert together.startswith("  together: 48 rollouts, 144 calls, ")
    assert limit.startswith("  budget.max_tokens = 10 may not be enough for the whole matrix")
    skills = {str(version): training.run.skill(version) for version in (0, 1)}
    estimate = estimate_matrix(training.run, Split.TEST, skills)
    cheap, dear = estimate.cells
    assert (cheap.likely, cheap.most.prompt) == (dear.likely, dear.most.prompt)
    # Of three calls the second reads one answer and what it was told, and the third two of each.
    answer = training.config.model.max_tokens - ROLLOUT_TOKENS + (MOST_TOLD_CHARS - TOLD_CHARS) / CHARS_PER_TOKEN
    assert cheap.most.prompt - cheap.likely.prompt == pytest.approx(24 * 3 * answer, abs=1)
    usd = (cheap.likely.prompt * 1.0 + cheap.likely.completion * 10.0) / 1e6
    assert estimate.usd("likely") == pytest.approx(3 * usd)
    assert (estimate.usd("most") or 0) > (estimate.usd("likely") or 0) > 0


def test_an_estimate_without_prices_with_an_agent_or_a_judge(caplog: pytest.LogCaptureFixture) -> None:
    lines = logged(caplog, TransferTraining.of(), harnesses=("codex",))
    assert "no price known" in lines[3]
    assert "codex" in lines[4]
    lines = logged(caplog, TransferTraining.of(model__judge="openai-chat:judge", model__judge_conn_id="judge"))
    assert "  together: 48 rollouts, 96 calls, 48 of them the judge's, " in lines[3]


def test_stored_rollouts_are_not_estimated_again(caplog: pytest.LogCaptureFixture) -> None:
    training = TransferTraining.of()
    training.breaks = lambda target, item_id: Status.TIMEOUT if target == OTHER else None
    training.run_containers(training.plan(asked()))
    _, one, other, together = logged(caplog, training)
    assert ": 0 of 24 rollouts are to be made, 0 calls, 0 k to 0 k tokens" in one
    assert ": 24 of 24 rollouts are to be made" in other
    assert "  together: 24 rollouts, 24 calls" in together
    view = in_cell(training.run, 1)
    assert open_rollouts(view, Split.TEST, view.skill(0)) == 12


def test_a_budget_that_is_surely_too_small_is_refused_and_one_that_is_spent_on_stored_rollouts_is_not() -> None:
    training = TransferTraining.of(budget__max_calls=47)
    with pytest.raises(ConfigError, match=r"^budget.max_calls leaves 47 calls, and 48 rollouts"):
        training.plan(asked())
    enough = TransferTraining.of(budget__max_calls=48)
    enough.run_containers(enough.plan(asked()))
    assert len(enough.asked_of) == 48
    # Cleared, it has nothing left to spend, and nothing to spend it on.
    assert len(enough.plan(asked())) == 4
    with pytest.raises(ConfigError, match=r"^budget.max_calls is used up"):
        enough.plan(asked(skills=("seed", "# Another one\n")))
