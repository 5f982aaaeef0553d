import re

from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.shortening import shortened


@given(st.text(st.characters(exclude_characters="]")), st.integers(60, 200))
def test_a_text_has_at_most_so_many_characters_and_says_how_many_are_left_out(text: str, limit: int):
    made = shortened(text * 9, limit)
    assert len(made) <= limit
    assert (made == text * 9) == (len(text * 9) <= limit)
    if made != text * 9:
        [left_out] = re.findall(r"\n\[(\d+) characters left out\]\n", made)
        assert len(text * 9) - int(left_out) == len(made) - len(f"\n[{left_out} characters left out]\n")
