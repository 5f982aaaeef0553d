from skillopt_airflow.core.types import Message, Rollout, Score, Status, Trajectory
from skillopt_airflow.optimizer.comparison import compare, comparison_section
from skillopt_airflow.optimizer.transcripts import MOST_CHARS, trajectories_section


def test_the_optimizer_is_shown_the_beginning_and_the_end_of_what_a_tool_gave() -> None:
    said = (
        Message(role="system", content="The skill."),
        Message(role="assistant", content="a" * 2 * MOST_CHARS),
        Message(role="tool", content="[search, 0.1 s]\n" + "t" * 2 * MOST_CHARS + "the end"),
    )
    trajectory = Trajectory(item_id="i-1", status=Status.OK, messages=said, answer="x")
    rollout = Rollout(trajectory=trajectory, score=Score(hard=1, soft=1))
    section = trajectories_section([rollout])
    assert "The skill." not in section
    assert "a" * 2 * MOST_CHARS in section
    assert "[search, 0.1 s]" in section
    assert "characters left out" in section
    assert "the end" in section
    assert "t" * MOST_CHARS not in section
    compared = comparison_section(compare({"i-1": rollout}, {"i-1": rollout}, ["i-1"], "mixed"))
    assert "the end" in compared
    assert "t" * MOST_CHARS not in compared
