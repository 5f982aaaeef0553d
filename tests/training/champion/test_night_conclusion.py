from skillopt_airflow.core.gate.night_verdict import NightPoint
from skillopt_airflow.store.keys import RegateKeys
from skillopt_airflow.store.tables.night_table import Contender
from skillopt_airflow.training.champion.night_conclusion import (
    LedgerRow,
    NightSeries,
    point_of,
    read_series,
    write_series,
)
from tests import page_data
from tests.training.local_store import LocalStore

KEYS = RegateKeys("team/", "searchqa", "openai-chat:m")
ONE, TWO = (Contender(version=f"v000{number}-0123456789ab", sha256=f"{number}") for number in (1, 2))


def rows(count: int) -> list[LedgerRow]:
    return page_data.ledger(page_data.nights("searchqa", KEYS.target, TWO, ONE, count, drop_at=3), page_data.ALPHA)


def settle(store: LocalStore, row: LedgerRow) -> None:
    store.put_model(KEYS.night(row.night.date), row.night)


def points(store: LocalStore) -> tuple[NightPoint, ...]:
    return store.get_model(KEYS.series, NightSeries).points


def test_each_night_is_added_with_its_verdict() -> None:
    store, made = LocalStore(), rows(5)
    # A night that is cleared is not there twice.
    for row in (*made, made[0]):
        settle(store, row)
        write_series(store, KEYS, page_data.ALPHA, row)
    assert points(store) == tuple(map(point_of, made))
    assert read_series(store, RegateKeys("", "searchqa", "another")) == []
    read: list[str] = []
    store.before_read = read.append
    assert read_series(store, KEYS) == list(map(point_of, made))
    assert read == [KEYS.series]
    assert [point.date for point in read_series(store, KEYS, most=2)] == ["2026-10-04", "2026-10-05"]


def test_nights_that_are_missing_in_it_are_judged_anew() -> None:
    store, made = LocalStore(), rows(5)
    for row in made:
        settle(store, row)
    write_series(store, KEYS, page_data.ALPHA, made[-1])
    assert points(store) == tuple(map(point_of, made))
