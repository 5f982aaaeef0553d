from hypothesis import given
from hypothesis import strategies as st

from include.sandbox.containers import capped, lines


@given(st.lists(st.binary()), st.integers(1, 64))
def test_a_log_keeps_its_beginning(chunks, limit):
    whole = b"".join(chunks)
    kept = b"".join(capped(chunks, limit))
    if len(whole) < limit:
        assert kept == whole
    else:
        assert kept == whole[:limit] + b"\n[further output of the container is left out]\n"


@given(st.lists(st.binary()))
def test_lines_do_not_depend_on_how_they_arrived_and_show_what_a_terminal_would_obey(chunks):
    shown = list(lines(chunks))
    assert shown == list(lines([b"".join(chunks)]))
    assert all(char.isprintable() or char == "\t" for line in shown for char in line)


def test_a_line_cannot_pass_for_another():
    assert list(lines([b"fine\r\n\x1b[2Jgone\nno", b" end"])) == ["fine", "\\x1b[2Jgone", "no end"]
