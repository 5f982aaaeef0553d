"""What a model, a tool, a scorer or a data set may have written changes nothing about the pages that show it."""

import json
import re
from urllib.parse import urlencode

import pytest
from fastapi.testclient import TestClient
from lxml import html

from skillopt_airflow.core.config.resource_groups import StorageGroup
from skillopt_airflow.core.values.text import storable
from skillopt_airflow.core.values.types import Grade, Item, Message, Rollout, Score, Split, Status, Trajectory
from skillopt_airflow.store.data.item_tables import save_items
from skillopt_airflow.store.keys import RunKeys
from skillopt_airflow.store.tables.rollout_table import RolloutTable
from skillopt_airflow.ui import access, rollout_list
from tests.store.stored_rollouts import OTHER, SKILL, rollout_key
from tests.training.local_store import LocalStore
from tests.ui.hostile_texts import HOSTILE, assert_harmless, plain

ROUTE = rollout_list.SKILL_ROUTE.format(benchmark="searchqa")
STORAGE = StorageGroup()


def stored(text: str, item_id: str) -> LocalStore:
    """A failure and a rollout of an item of which everything that somebody else wrote is the text."""
    store = LocalStore()
    item = Item(id=item_id, public={"question": text}, reference={"answers": [text]}, task_types=(text,))
    save_items(store, RunKeys(STORAGE.prefix, "searchqa", "run").items(Split.VAL), [item])
    said = (
        ("system", text),
        ("user", text),
        ("assistant", f"{text}\nsearch({json.dumps({'query': text, 'more': [text]}, ensure_ascii=False)})"),
        ("tool", f"[search, 1.5 s]\n{text}"),
        ("tool", text),
        ("assistant", text),
    )
    trajectory = Trajectory(
        item_id=item_id,
        status=Status.OK,
        messages=tuple(Message.model_validate({"role": role, "content": content}) for role, content in said),
        answer=text,
        files=(text,),
    )
    grade = Grade(grade="incorrect", quote=text, reason=text)
    rollout = Rollout(trajectory=trajectory, score=Score(hard=0.0, soft=0.5, feedback=text, grade=grade))
    failure = Rollout(trajectory=Trajectory(item_id=item_id, status=Status.REFUSED, error=text), score=None)
    table = RolloutTable(store, STORAGE.prefix)
    for skill, one in ((SKILL, failure), (SKILL, rollout), (OTHER, failure)):
        table.append(rollout_key(skill), "run", [(item, one)])
    return store


def pages(viewer: TestClient, monkeypatch: pytest.MonkeyPatch, store: LocalStore, text: str) -> list[str]:
    """Lists, one with the text in its filters, the item beside another skill, and the item alone."""
    monkeypatch.setattr(access, "open_bucket", lambda storage, bucket: store)
    asked = {"skill": SKILL[:12], "split": "val", "other": OTHER[:12]}
    short = text[:200]
    addresses = [
        urlencode(asked),
        urlencode(asked | {"text": short, "within": "said", "task_type": short}),
        urlencode({"skill": OTHER[:12]}),
    ]
    found = [viewer.get(f"{ROUTE}?{address}").text for address in addresses]
    [link] = html.document_fromstring(found[0]).xpath("//table[@class='rollouts']//a[contains(@href, 'place=')]/@href")
    assert len(link) < 1500
    for opened in (link, f"?{urlencode({'skill': OTHER[:12], 'place': 1})}"):
        answer = viewer.get(f"{ROUTE}{opened}")
        assert answer.status_code == 200, answer.text[-500:]
        found.append(answer.text)
    return found


@pytest.mark.nightly
@pytest.mark.parametrize("name", HOSTILE)
def test_a_page_is_the_same_whatever_was_written(
    viewer: TestClient, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # The filters have to find it as it is stored.
    text = storable(HOSTILE[name])
    hostile = pages(viewer, monkeypatch, stored(text, text), text)
    harmless = pages(viewer, monkeypatch, stored(plain(text), plain(text)), plain(text))
    for page, plain_page in zip(hostile, harmless, strict=True):
        assert_harmless(page, plain_page)


def test_a_line_of_a_megabyte_says_how_much_of_it_is_missing(
    viewer: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = HOSTILE["long_line"]
    *_, item, failure = pages(viewer, monkeypatch, stored(text, "a"), text)
    left_out = [int(number) for number in re.findall(r"\[(\d+) characters left out\]", item)]
    assert any(len(text) - 20_000 < number < len(text) - 19_900 for number in left_out)
    assert "characters left out]" in failure
    # Neither the answer, nor the feedback.
    assert text[:30_000] not in item


@pytest.mark.nightly
@pytest.mark.parametrize("name", HOSTILE)
def test_an_address_may_say_anything(viewer: TestClient, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(access, "open_bucket", lambda storage, bucket: stored("a", "a"))
    text = HOSTILE[name][:5000]
    filters, places = ("other", "task_type", "moment", "stage", "text"), ("skill", "target", "harness")
    for fields in (filters, places[1:], places[:1]):
        asked = {"skill": SKILL[:12], "split": "val"}
        said = (asked | dict.fromkeys(fields, one) for one in (text, plain(text)))
        answer, same = (viewer.get(f"{ROUTE}?{urlencode(one)}") for one in said)
        assert answer.status_code == same.status_code
        assert_harmless(answer.text, same.text)
