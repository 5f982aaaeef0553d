from collections import Counter

import pytest

from local.standin.economy import DEMO, HARMFUL, RULES, World

ITEMS = [f"item-{number}" for number in range(2000)]


def test_shares_of_items_are_those_of_the_economy() -> None:
    natures = [World().nature(item) for item in ITEMS]
    rules = Counter(nature.rule for nature in natures if nature.rule)
    assert sum(rules.values()) / len(ITEMS) == pytest.approx(DEMO.needs_rule, abs=0.04)
    assert sum(bool(nature.harmful) for nature in natures) / len(ITEMS) == pytest.approx(DEMO.needs_nothing, abs=0.04)
    assert {*rules} == {*RULES[: DEMO.rules]}
    assert rules[RULES[0]] > rules[RULES[DEMO.rules - 1]]


@pytest.mark.parametrize("item", ITEMS[:200])
def test_an_item_is_right_exactly_if_the_skill_has_its_rule_and_no_harmful_sentence(item: str) -> None:
    nature = World().nature(item)
    if nature.rule:
        assert World().right(item, f"# Skill\n\n- {nature.rule}")
        assert not World().right(item, "# Skill")
    elif nature.harmful:
        assert World().right(item, "# Skill")
        assert not World().right(item, f"- {nature.harmful}")


def test_noise_and_chance_differ_from_sample_to_sample() -> None:
    chancy = next(item for item in ITEMS if 0 < World().nature(item).chance < 1)
    assert {World().right(chancy, "", sample) for sample in range(20)} == {True, False}
    needy = next(item for item in ITEMS if World().nature(item).rule == RULES[0])
    noisy = World(noise=0.3)
    assert sum(noisy.right(needy, RULES[0], sample) for sample in range(1000)) == pytest.approx(700, abs=60)


def test_no_sentence_is_part_of_another() -> None:
    for sentence in (*RULES, *HARMFUL):
        assert sum(sentence in other for other in (*RULES, *HARMFUL)) == 1
