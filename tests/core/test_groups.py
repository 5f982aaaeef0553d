from skillopt_airflow.core.groups import count_groups, members, sums


def test_an_item_without_a_group_is_one_of_its_own_even_if_it_is_called_like_one() -> None:
    values = {"a": 1.0, "b": 2.0, "c": 4.0, "d": 8.0}
    groups = {"b": "a", "c": "x", "d": "x", "z": "x", "e": ""}
    assert members(values, groups) == [[1.0], [2.0], [4.0, 8.0]]
    assert sums(values, groups) == [1.0, 2.0, 12.0]
    assert members(values, {}) == [[1.0], [2.0], [4.0], [8.0]]
    assert members({}, groups) == []
    assert count_groups(["", "x", "x", "y", ""]) == 4
    assert count_groups(["", ""]) is count_groups([]) is None
