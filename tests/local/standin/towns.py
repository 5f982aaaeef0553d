"""Clues on invented towns and what the stand-in answers to them."""

from collections.abc import Callable

from benchmarks.searchqa.adapter import BENCHMARK
from local.standin import chat_wire as chat
from skillopt_airflow.core.types import Message, Rollout, Status, Trajectory


def led_astray(index: int, town: str, country: str) -> str:
    """Half of the pages repeat the clue, in the other half the first one leads astray."""
    first = "Zenda, Zenda" if index % 2 else f"{country}, {country}, {country}, {country}, near {town}"
    return f"[DOC] [TLE] x [PAR] {first} [DOC] [TLE] {town} [PAR] {town} is in {country}. [DOC] [TLE] {town}"


def titled(_: int, town: str, country: str) -> str:
    """The town's name stands in every title, and its country is repeated."""
    return f"[DOC] [TLE] {town} [PAR] {country}, {country}, {country} [DOC] [TLE] {town} [PAR] in {country}, too"


def rollouts(skill: str, count: int, context: Callable[[int, str, str], str] = led_astray) -> list[Rollout]:
    made = []
    for index in range(count):
        town, country = f"Strelsa{chr(97 + index)}", f"Ruritani{chr(97 + index)}"
        public = {"question": f"{country} has this capital", "context": context(index, town, country)}
        item = BENCHMARK.item({"id": f"q{index}", "answers": [town], **public})
        asked = BENCHMARK.messages(item.public, skill)
        completion = chat.complete({"messages": [message.model_dump() for message in asked]})
        reply = Message(role="assistant", content=completion["choices"][0]["message"]["content"])
        answer = BENCHMARK.answer(reply.content)
        trajectory = Trajectory(item_id=item.id, status=Status.OK, messages=(*asked, reply), answer=answer)
        made.append(Rollout(trajectory=trajectory, score=BENCHMARK.score(item, trajectory)))
    return made
