import httpx
import pytest

from include.sandbox.provider import retry_after


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:10 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 10.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT", "date": "Wed, 21 Oct 2026 07:28:10 GMT"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(headers, seconds):
    assert retry_after(httpx.Response(429, headers=headers)) == seconds
