"""The forms of the world: each has a table of its own, and settings that a training takes."""

from dataclasses import replace

from bench.world import FORMS, reference
from skillopt_airflow.core.config import TrainConfig


def test_every_form_has_a_table_and_a_benchmark_of_its_own() -> None:
    assert len({form.title for form in FORMS}) == len({form.name for form in FORMS}) == len(FORMS)


def test_a_form_is_a_configuration_and_its_title_names_what_is_not_as_by_default() -> None:
    for form in FORMS:
        config = TrainConfig.from_layers(form.layer)
        for path, value in form.knobs.items():
            group, key = path.split(".")
            assert getattr(getattr(config, group), key) == value
            assert f", {path} {value}" in form.title
        assert (config.train.num_epochs, config.model.concurrency) == (form.epochs, 24)


def test_a_mechanism_is_measured_beside_the_same_training_without_it() -> None:
    plain = {(form.latency, form.epochs, form.economy): form for form in FORMS if not form.knobs}
    with_knobs = [form for form in FORMS if form.knobs]
    assert [list(form.knobs) for form in with_knobs] == [["evaluation.screen"]] * 2
    for form in with_knobs:
        other = plain[form.latency, form.epochs, form.economy]
        assert replace(form, name=other.name, knobs={}) == other


def test_the_wall_of_the_reference_at_another_latency_is_that_of_its_calls_and_its_own_cpu_seconds() -> None:
    walls = {form.name: reference(form) for form in FORMS if form.name != "world_small"}
    assert (walls["world"]["wall"], walls["world"]["wall / steps"]) == ("1019", "25.5")
    assert walls["world_screen"] == walls["world"]
    # (1019 - 53.2) * 5 + 53.2
    assert (walls["world_5s"]["wall"], walls["world_5s"]["wall / steps"]) == ("4882", "122.1")
