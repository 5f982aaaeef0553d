import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.provider_statuses import CODES, ending_status, error_status, failed_with
from skillopt_airflow.core.types import Status
from tests.core.provider_rows import ENDINGS, ERRORS, OTHERS, Row, error, failed_response, minimax

PAGE = Path(__file__).parents[2] / "docs" / "statuses.md"


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
    assert failed_with(row.body) == 400
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
    assert failed_with(document) == http_status


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
        failed = failed_with(body)
        assert failed == 0 or 400 <= failed < 600
    ending_status(body)


def test_the_page_lists_the_rows_that_are_tested() -> None:
    said = [f"| {row.provider} | {row.sends} | `{row.status}` |" for row in (*ERRORS, *ENDINGS)]
    listed = re.findall(r"^\| .* \| `\w+` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == said
