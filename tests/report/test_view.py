"""Items on the page of a run, with what the target was told and said."""

from skillopt_airflow.core.gate.item_scores import ItemScore
from skillopt_airflow.core.values.pictures import mark
from skillopt_airflow.core.values.types import Message, Rollout, Score, Status, Trajectory
from skillopt_airflow.report.view import MAX_CHARS, Part, example_ids, example_of

PICTURE = b"\xff\xd8\xffsmall"


def rollout(said: str = "<answer>7</answer>", **trajectory: object) -> Rollout:
    messages = (
        Message(role="system", content="# Skill"),
        Message(role="user", content=f"Look: {mark('picture-1.png')} How many?"),
        Message(role="assistant", content=said),
    )
    one = Trajectory.model_validate({"item_id": "a", "status": "ok", "messages": messages, "answer": "7"} | trajectory)
    return Rollout(trajectory=one, score=Score(hard=0, soft=0, feedback="8") if one.status.scored else None)


def test_failures_and_successes_are_shown_the_first_ones_of_each() -> None:
    hard = {"a": 1.0, "b": 0.0, "c": 0.5, "d": 0.0, "e": 1.0, "f": 1.0}
    assert example_ids({item: ItemScore(hard=score, soft=score) for item, score in hard.items()}) == [
        "b",
        "c",
        "a",
        "e",
    ]


def test_a_picture_stands_where_the_target_saw_it_and_the_skill_is_left_out() -> None:
    example = example_of(rollout(f"I see {mark('picture-1.png')}."), {"picture-1.png": PICTURE})
    assert example is not None
    user, assistant = example.turns
    assert user.parts == (Part(text="Look: "), Part(thumbnail=PICTURE), Part(text=" How many?"))
    assert user.parts[1].data_url.startswith("data:image/jpeg;base64,")
    # A target cannot place pictures by quoting a mark.
    assert assistant.parts == (Part(text="I see [picture: picture-1.png]."),)
    assert (example.answer, example.feedback) == ("7", "8")


def test_a_long_text_shows_its_ends() -> None:
    example = example_of(rollout("a" * MAX_CHARS + "b" * MAX_CHARS), {})
    assert example is not None
    [text] = [part.text for part in example.turns[-1].parts]
    assert (text[:3], text[-3:]) == ("aaa", "bbb")
    assert "characters left out]" in text
    # What has no score or no text any more is left out.
    assert example_of(rollout(status=Status.TIMEOUT), {}) is None
    assert example_of(rollout(messages=()), {}) is None
