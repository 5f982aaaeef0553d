import re

from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.values.text import longest_that_fits, shortened


@given(st.text(st.characters(exclude_characters="]")), st.integers(60, 200))
def test_a_text_has_at_most_so_many_characters_and_says_how_many_are_left_out(text: str, limit: int):
    made = shortened(text * 9, limit)
    assert len(made) <= limit
    assert (made == text * 9) == (len(text * 9) <= limit)
    if made != text * 9:
        [left_out] = re.findall(r"\n\[(\d+) characters left out\]\n", made)
        assert len(text * 9) - int(left_out) == len(made) - len(f"\n[{left_out} characters left out]\n")


@given(st.lists(st.integers(0, 99), max_size=9), st.integers(0, 500))
def test_what_fits_is_left_whole_and_the_room_is_used(lengths: list[int], room: int) -> None:
    most = longest_that_fits(lengths, room)
    used = sum(min(length, most) for length in lengths)
    assert used <= room
    if sum(lengths) <= room:
        assert used == sum(lengths)
    else:
        assert used > room - len(lengths)
