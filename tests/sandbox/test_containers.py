from hypothesis import given
from hypothesis import strategies as st

from include.sandbox.containers import SANDBOX_LABEL, capped, identity


@given(st.lists(st.binary()), st.integers(1, 64))
def test_a_log_keeps_its_beginning(chunks, limit):
    whole = b"".join(chunks)
    kept = b"".join(capped(chunks, limit))
    if len(whole) < limit:
        assert kept == whole
    else:
        assert kept == whole[:limit] + b"\n[further output of the container is left out]\n"


def test_labels_tell_installations_apart(monkeypatch):
    monkeypatch.setenv("SKILLOPT_HOME", "/srv/one")
    labels = identity({"run": "r-1", "chunk": "0"})
    assert labels == {SANDBOX_LABEL: "/srv/one", "skillopt.run": "r-1", "skillopt.chunk": "0"}
    monkeypatch.setenv("SKILLOPT_HOME", "/srv/two")
    assert identity({})[SANDBOX_LABEL] == "/srv/two"
