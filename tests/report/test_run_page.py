import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from example_run import SEED
from pydantic import BaseModel

from skillopt_airflow.core.gate.paired import paired_values
from skillopt_airflow.core.values.provenance import LineOrigin
from skillopt_airflow.report.run_page import render
from skillopt_airflow.report.view import ReportView, slug_of
from tests.report.html_page import Page

PROJECT = Path(__file__).parents[2]
NASTY = (
    "</pre></code></td></table></details></title></style></svg><script>alert(1)</script><img src=x onerror=alert(1)>"
    "\"'` onmouseover=\"alert(1)\" href='javascript:alert(1)' <svg/onload=alert(1)> <!-- --> ]]> &lt; {{ 7 * 7 }} "
    "{% raw %} </textarea><iframe srcdoc=x></iframe><base href=//example.org>"
)
TAME = "x"


def everywhere(value: Any, text: str) -> Any:
    """The value with `text` in every field that may hold any text, however deep."""
    if isinstance(value, tuple):
        return tuple(everywhere(part, text) for part in value)
    if not isinstance(value, BaseModel):
        return value
    changes = {}
    for name, field in type(value).model_fields.items():
        kept = getattr(value, name)
        if name == "skill":
            changes[name] = "\n".join(text for _ in kept.split("\n"))
        elif field.annotation is str and kept:
            changes[name] = text
        elif field.annotation == tuple[str, ...]:
            changes[name] = tuple(text for _ in kept)
        else:
            changes[name] = everywhere(kept, text)
    return value.model_copy(update=changes)


@pytest.fixture(scope="module")
def page(view: ReportView) -> Page:
    return Page(render(view))


def test_what_a_model_wrote_becomes_text_and_nothing_else(view: ReportView) -> None:
    stopped = view.model_copy(update={"stopped": "budget"})
    nasty, tame = (Page(render(everywhere(stopped, text))) for text in (NASTY, TAME))
    assert nasty.shape() == tame.shape()
    assert not nasty.comments
    assert not nasty.unclosed
    assert NASTY in nasty.text
    tags = {tag for tag, _, _ in nasty.elements}
    assert not tags & {"script", "iframe", "base", "object", "embed", "form", "link"}
    assert not [name for _, attributes, _ in nasty.elements for name in attributes if name.startswith("on")]
    assert all(link.startswith("#") for link in nasty.links)
    # And control characters are seen.
    written = everywhere(view, "a\x00b\x1b[31mc\rd\x7f\te").model_copy(update={"costs": view.costs})
    assert "a␀b␛[31mc␍d[U+007F]\te" in Page(render(written)).text


@pytest.mark.nightly
def test_rollouts_are_told_with_their_failures_waste_and_price(view: ReportView, page: Page) -> None:
    told = " ".join(" ".join(page.texts).split())
    assert "evaluate 816 802 96 0 3 budget, 11 model error model error: Invalid response: usage.prompt_tokens: " in told
    assert "11 rollouts, for example item item-096" in told
    assert "96 of 802 answers (12%)" in told
    assert "40 ran ahead of a gate, of which 20 were wasted" in told
    # The stand-in is no language model, and an unknown price isn't a free one.
    assert "not a language model" in told
    assert "no known price for the target" in told
    without = Page(render(view.model_copy(update={"outcomes": view.outcomes[:1]})))
    assert "Failed rollouts" not in without.text
    assert "Truncated or empty answers" not in without.text


def test_the_page_has_the_cost_of_a_point_gained_on_the_test_split(view: ReportView, page: Page) -> None:
    card = "Tokens per point gained"
    assert card in page.text
    # 2,619,000 tokens for 20 points, at a price that is not known.
    assert "130,950" in page.text
    assert "calls for each of 20.0 points" in " ".join(page.text.split())
    priced = view.model_copy(update={"costs": tuple(row for row in view.costs if row.usd is not None)})
    assert " calls and $0." in " ".join(Page(render(priced)).text.split())
    no_gain = view.model_copy(update={"test": view.test | {"best": view.test["seed"]}})
    assert card not in Page(render(no_gain)).text


def test_a_long_skill_is_a_warning(view: ReportView, page: Page) -> None:
    assert "Long skill." not in page.text
    long = view.model_copy(update={"skill": "x" * 12_000})
    assert "about 3,000 tokens" in Page(render(long)).text


def test_the_page_asks_for_nothing(view: ReportView, page: Page) -> None:
    attributes = [(name, value or "") for _, each, _ in page.elements for name, value in each.items()]
    assert not [name for name, _ in attributes if name in {"srcset", "data", "action", "background"}]
    pictures = [value for name, value in attributes if name == "src"]
    assert len(pictures) == 2
    assert all(value.startswith("data:image/jpeg;base64,") for value in pictures)
    linked = [value for name, value in attributes if name in {"href", "xlink:href"}]
    assert all(value.startswith("#") for value in linked)
    html = render(view)
    assert "@import" not in html
    assert all(place == "#" for place in re.findall(r"url\((.)", html))
    # Every link leads somewhere, and every id is one place.
    assert not [name for name, count in Counter(page.ids).items() if count > 1]
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)


def test_each_moment_shows_its_verdict_its_edits_and_its_difference(view: ReportView) -> None:
    html = render(view)
    for moment in view.moments:
        section = html[html.index(f'id="{slug_of(moment.name)}"') :].split("</details>")[0]
        text = Page(f"<div {section}").text
        assert moment.decision.reason in text
        assert text.count("support ") == len(moment.edits)
        assert all(part in text for row in moment.edits for part in (row.edit.content, row.edit.rationale))
        assert all(row.edit.anchor in text for row in moment.edits)
        assert all(line in text for line in moment.diff.split("\n"))
        assert all(fallback in text for fallback in moment.fallbacks)
        assert all(pattern.description in text for pattern in moment.failure_patterns)


def test_a_candidate_without_an_item_of_the_current_skill_has_no_difference(view: ReportView) -> None:
    moment = next(moment for moment in view.moments if moment.candidate is not None)
    decision = moment.decision.model_copy(update={"against_current": paired_values([])})
    text = Page(render(view.model_copy(update={"moments": (moment.model_copy(update={"decision": decision}),)}))).text
    assert "Difference to current–" in text
    assert "+0.0000" not in text


def test_a_candidate_that_was_rejected_early_has_a_bound(view: ReportView, page: Page) -> None:
    early = [moment for moment in view.moments if moment.decision.bound is not None]
    assert early
    for moment in early:
        assert moment.candidate is None
        assert f"≤ {moment.decision.bound:.4f}" in page.text


def test_each_line_of_the_skill_links_to_the_edit_that_wrote_it(view: ReportView, page: Page) -> None:
    written = {line for line in view.lines if line.edit is not None}
    names = {moment.name: slug_of(moment.name) for moment in view.moments}
    assert {f"#{names[line.moment]}-edit-{line.edit}" for line in written} <= set(page.links)
    assert all(line in page.text for line in view.skill.split("\n"))


def test_a_line_of_another_run_names_its_step_and_one_of_many_minibatches_counts_them(view: ReportView) -> None:
    line = LineOrigin(run="before", moment="steps/step_0007", edit=0, op="append", minibatches=("failure-1",))
    many = LineOrigin(moment=view.moments[0].name, edit=0, op="rewrite", minibatches=("failure-0",) * 40)
    lines = view.model_copy(update={"skill": "One line.\nTwo.", "lines": (line, many)})
    text = Page(render(lines)).text
    assert "step 7 of run before (append, failure-1)" in text
    assert "(rewrite, 40 minibatches)" in text


def test_a_run_that_stopped_at_once_has_a_page(view: ReportView) -> None:
    seed = LineOrigin(moment="steps/step_0000")
    empty: dict[str, object] = {"moments": (), "test": {}, "costs": (), "published": None}
    nothing = empty | {"best": view.seed}
    models = {"target": "openai-chat:qwen3", "optimizer": "openai-chat:gpt-5", "stopped": "budget.max_calls = 80"}
    skill = {"skill": SEED, "lines": (seed,) * (SEED.count("\n") + 1)}
    page = Page(render(view.model_copy(update=nothing | models | skill)))
    assert "after 0 of 12 steps: budget.max_calls = 80" in page.text
    assert "stand-in. The answers" not in page.text
    assert not page.unclosed


@pytest.mark.nightly
def test_equal_views_give_equal_pages_in_every_process(view: ReportView) -> None:
    program = """import sys; from example_run import example; from skillopt_airflow.report.run_page import render
sys.stdout.buffer.write(render(example()).encode())"""
    search = os.pathsep.join((str(PROJECT / "include"), str(Path(__file__).parent)))
    environment = {**os.environ, "PYTHONPATH": search, "PYTHONHASHSEED": "7"}
    other = subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True)
    assert other.stdout.decode() == render(view)
