import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.values.failure_reasons import (
    ADVICE,
    CODES,
    FIRST_ITEMS,
    MAX_ERROR_CHARS,
    MAX_ID_CHARS,
    UNREADABLE,
    FailureReason,
    RolloutTally,
    advice,
    ending_status,
    error_status,
    failure_http_status,
    is_transient,
    lasting_error,
    share,
    shared_lasting_failure,
)
from skillopt_airflow.core.values.types import Status, Trajectory
from tests.core.provider_rows import ENDINGS, ERRORS, OTHERS, Row, error, failed_response, minimax

FAILED = [status for status in Status if not status.scored]
TRAJECTORY = st.builds(
    Trajectory,
    item_id=st.text(min_size=1),
    status=st.sampled_from(Status),
    error=st.text() | st.sampled_from(["too slow", "no answer in 3 s"]),
)


def failed(item_id: str, error: str, status: Status = Status.MODEL_ERROR) -> Trajectory:
    return Trajectory(item_id=item_id, status=status, error=error)


def reason(*trajectories: Trajectory, items: int = 9) -> str:
    return str(FailureReason.of(trajectories, items))


def test_the_most_frequent_error_is_told_with_its_count_and_an_item():
    broken = "Invalid response: usage.prompt_tokens: Field required"
    rows = [failed("17", broken), failed("4", "too slow", Status.TIMEOUT), failed("18", broken)]
    rows += [failed("19", broken, Status.REFUSED), Trajectory(item_id="1", status=Status.OK)]
    assert reason(*rows) == f"2 of 9 items: model_error: {broken} (for example item 17)"
    assert reason(failed("a", "", Status.TIMEOUT)) == "1 of 9 items: timeout (for example item a)"
    # The most frequent wording stands for its kind.
    rows = [failed("a", "model m1 is busy"), failed("b", "model m2 is busy"), failed("c", "model m2 is busy")]
    assert reason(*rows) == "3 of 9 items: model_error: model m2 is busy (for example item b)"


@pytest.mark.parametrize(
    ("part", "told"),
    [(1.0, "100%"), (373 / 374, "99.7%"), (142 / 150, "94.6%"), (0.95, "95%"), (0.57, "57%"), (0.0, "0%")],
)
def test_a_share_is_never_rounded_up(part: float, told: str):
    assert share(part) == told


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("item a of the batch", "item b of the batch"),
        ("error at 10:15:03.120", "error at 10:16:04"),
        ("<Reply object at 0x7f3a90>", "<Reply object at 0x55b1>"),
        ("id f47ac10b-58cc-4372-a567-0e02b2c3d479", "id 9b2d1c3e-1a2b-4c3d-8e4f-aabbccddeeff"),
        ("refused by 10.0.0.7:8080", "refused by 10.0.0.12:9"),
        ("two\nlines", "two lines"),
    ],
)
def test_errors_that_differ_in_what_belongs_to_an_item_count_as_one(one: str, other: str):
    told = FailureReason.of([failed("a", one), failed("b", other), failed("c", "something else entirely")], 3)
    assert told is not None
    assert told.count == 2


def test_long_and_unprintable_texts_become_one_short_line():
    told = reason(failed("x\x1b" * 100, "\x1b[31mbroken\r\n" + "word " * 200))
    assert told.startswith("1 of 9 items: model_error: [31mbroken word word")
    assert told.count(" ...") == 2
    assert told.isprintable()


@given(st.lists(TRAJECTORY, unique_by=lambda one: one.item_id), st.randoms())
def test_a_reason_is_one_short_line_that_does_not_depend_on_the_order(rows: list[Trajectory], order: random.Random):
    told = FailureReason.of(rows, 100)
    turned = rows.copy()
    order.shuffle(turned)
    assert FailureReason.of(turned, 100) == told
    assert (told is None) == all(row.status.scored for row in rows)
    if told is not None:
        assert str(told).isprintable()
        assert len(told.error) <= MAX_ERROR_CHARS
        assert len(told.item_id) <= MAX_ID_CHARS
        assert told.count <= sum(row.status is told.status for row in rows)


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), min_size=1, max_size=9, unique_by=lambda t: t[0]),
    st.sampled_from(FAILED),
)
def test_numbers_and_ids_never_split_a_reason(numbers: list[tuple[int, int]], status: Status):
    rows = [failed(f"q{item}", f"q{item}: {number} tokens are too many", status) for item, number in numbers]
    told = FailureReason.of(rows, len(rows))
    assert told is not None
    assert (told.count, told.status) == (len(rows), status)


KINDS = st.sampled_from(["", "401", "404", UNREADABLE])


def failed_alike(number: int, kind: str) -> Trajectory:
    return Trajectory(item_id=f"i-{number}", status=Status.MODEL_ERROR, error=f"no {number}", lasting_error=kind)


def test_every_lasting_error_has_its_advice() -> None:
    assert not [status for status in range(600) if is_transient(status) and lasting_error(status)]
    assert all(map(advice, range(600)))
    assert {status for status in range(600) if lasting_error(status)} == {400, 401, 402, 403, 404, 405, 422}
    assert {int(lasting_error(status)) for status in ADVICE} == set(ADVICE)
    assert lasting_error(None) == lasting_error(200) == ""
    assert "host" in advice(0)


@given(kinds=st.lists(KINDS, max_size=12), items=st.integers(1, 40))
def test_a_chunk_is_given_up_exactly_if_its_first_items_failed_alike(kinds: list[str], items: int) -> None:
    wanted = min(FIRST_ITEMS, items)
    looked_at = kinds[:wanted]
    alike = len(looked_at) == wanted and len(set(looked_at)) == 1 and looked_at[0] != ""
    assert (shared_lasting_failure([failed_alike(n, kind) for n, kind in enumerate(kinds)], items) is not None) is alike


def test_the_reason_names_one_item() -> None:
    for items, count in ((200, 8), (3, 3)):
        reason = shared_lasting_failure([failed_alike(n, "401") for n in range(min(items, 20))], items)
        assert str(reason) == f"{count} of {count} items: model_error: no 0 (for example item i-0)"


def tally(*statuses: Status, planned: int | None = None) -> RolloutTally:
    rows = [Trajectory(item_id=str(index), status=status) for index, status in enumerate(statuses)]
    return RolloutTally.of(rows, len(rows) if planned is None else planned)


@given(st.lists(st.sampled_from(Status)), st.integers(0, 3))
def test_every_rollout_is_counted_once(statuses: list[Status], missing: int) -> None:
    found = tally(*statuses, planned=len(statuses) + missing)
    assert found.scored + sum(found.failures.values()) == len(statuses)
    assert found.truncated == statuses.count(Status.TRUNCATED)
    assert found.empty == statuses.count(Status.EMPTY)
    assert (found.reason is None) == (not found.failures)
    assert 0 <= found.coverage <= 1


def test_without_rollouts_nothing_is_missing() -> None:
    assert (tally().coverage, tally().cuts, str(tally())) == (1.0, "", "no rollout was left to make")


@pytest.mark.parametrize(("status", "said"), [(Status.TRUNCATED, "max_tokens"), (Status.EMPTY, "--reasoning-parser")])
@pytest.mark.parametrize(("odd", "whole", "warned"), [(0, 0, False), (1, 19, False), (2, 37, True), (1, 0, True)])
def test_more_than_one_cut_or_empty_answer_in_twenty_is_a_warning(
    status: Status, said: str, odd: int, whole: int, warned: bool
) -> None:
    found = tally(*[status] * odd, *[Status.OK] * whole, Status.TIMEOUT)
    assert (said in found.cuts) is warned
    assert found.cuts.startswith(f"{odd} of {odd + whole} answers") is warned


def test_cut_and_empty_answers_have_a_warning_each() -> None:
    both = tally(Status.EMPTY, Status.TRUNCATED, Status.OK).cuts
    assert both.startswith("1 of 3 answers (33%) were cut off")
    assert "; 1 of 3 answers (33%) were empty" in both


PAGE = Path(__file__).parents[3] / "docs" / "statuses.md"


@pytest.mark.parametrize("row", ERRORS, ids=lambda row: f"{row.provider} {row.sends}")
def test_an_error_has_its_status_as_values_text_and_within_a_sentence(row: Row) -> None:
    text = row.body if isinstance(row.body, str) else json.dumps(row.body)
    assert error_status(row.http_status, row.body) is row.status
    assert error_status(row.http_status, text) is row.status
    assert error_status(row.http_status, text.encode()) is row.status
    assert error_status(row.http_status, f"API Error: {row.http_status} {text}, request id: r-1") is row.status
    inner = row.body.get("error") if isinstance(row.body, dict) else None
    if isinstance(inner, dict) and "contentFilter" not in row.body:
        # OpenAI's client keeps the inner object only.
        assert error_status(row.http_status, inner) is row.status


@pytest.mark.parametrize("row", [row for row in ERRORS if row.http_status == 200], ids=lambda row: row.sends)
def test_an_error_that_comes_with_status_200_is_not_a_success(row: Row) -> None:
    assert failure_http_status(row.body) == 400
    assert error_status(400, row.body) is row.status


@pytest.mark.parametrize("row", ENDINGS, ids=lambda row: f"{row.provider} {row.sends}")
def test_an_ending_has_its_status(row: Row) -> None:
    # Whether there is a text is the caller's to find out.
    assert ending_status(row.body) is (Status.OK if row.status is Status.EMPTY else row.status)


@pytest.mark.parametrize(("http_status", "body"), OTHERS)
def test_other_errors_and_mere_mentions_are_neither_refused_nor_too_long(http_status: int, body: Any) -> None:
    assert error_status(http_status, body) is None


@pytest.mark.parametrize("status", CODES)
def test_the_gateways_own_codes_are_known(status: Status) -> None:
    assert error_status(400, error("status_code: 400", CODES[status])) is status


@pytest.mark.parametrize(
    ("document", "http_status"),
    [
        ({"error": {"message": "overloaded"}}, 502),
        ({"error": {"message": "no key", "code": 401}}, 401),
        ({"error": {"message": "busy", "code": "429"}}, 429),
        (failed_response("server_error", "try again"), 502),
        (minimax(1004, "login fail"), 401),
        (minimax(1000, "unknown error"), 502),
        ({"choices": [{"message": {"content": "Eif"}, "finish_reason": "error"}]}, 502),
        ({"choices": [{"message": {"content": ""}, "error": {"code": 504}}]}, 504),
        ({"hello": 1}, 0),
    ],
)
def test_a_failure_sent_with_status_200_has_the_http_status_that_belongs_to_it(
    document: dict[str, Any], http_status: int
) -> None:
    assert failure_http_status(document) == http_status


def test_names_that_only_hold_another_one_are_other_endings() -> None:
    for name in ("stop", "eos", "end_turn", "COMPLETE", "tool_calls", "stop_sequence", "lengthy", "pause_turn"):
        assert ending_status(name) is Status.OK
    assert ending_status(None, "length") is Status.TRUNCATED
    assert ending_status("MALFORMED_FUNCTION_CALL", "error") is Status.OK


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["error", "code", "message"]), inner),
    max_leaves=20,
)


@given(JSON | st.binary(), st.sampled_from([0, 200, 400, 401, 403, 422, 429, 500, 503]))
def test_no_body_breaks_the_table(body: Any, http_status: int) -> None:
    assert error_status(http_status, body) in (None, Status.REFUSED, Status.TOO_LONG)
    if isinstance(body, dict):
        failed = failure_http_status(body)
        assert failed == 0 or 400 <= failed < 600
    ending_status(body)


def test_the_page_lists_the_rows_that_are_tested() -> None:
    said = [f"| {row.provider} | {row.sends} | `{row.status}` |" for row in (*ERRORS, *ENDINGS)]
    listed = re.findall(r"^\| .* \| `\w+` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == said
