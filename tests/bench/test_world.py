"""The forms of the world: each has a column of its own, and settings that a training takes."""

from dataclasses import replace

from bench.world import FULL, SMALL
from skillopt_airflow.core.config import TrainConfig


def test_every_form_has_a_column_and_a_benchmark_of_its_own() -> None:
    forms = (*FULL, *SMALL)
    assert len({form.title for form in forms}) == len({form.name for form in forms}) == len(forms)


def test_a_form_is_a_configuration_and_its_title_names_the_screen() -> None:
    for form in (*FULL, *SMALL):
        config = TrainConfig.from_layers(form.layer)
        assert config.evaluation.screen == form.screen
        assert ("screen" in form.title) == (form.screen == "batch")


def test_the_screen_is_measured_beside_the_same_training_without_it() -> None:
    [screened] = [form for form in FULL if form.screen == "batch"]
    assert replace(screened, name=FULL[0].name, screen="none") == FULL[0]
