"""Items of published files with their pictures, as a run of its own would have them."""

import io
from typing import cast

from PIL import Image

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.train_config import TrainConfig, nest
from skillopt_airflow.core.values.types import DATA_SPLITS, Item
from skillopt_airflow.store.data.files import DataFiles
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config
from skillopt_airflow.training.trial import first_items


def picture(shade: int) -> bytes:
    stored = io.BytesIO()
    Image.new("L", (40, 30), shade).save(stored, "PNG")
    return stored.getvalue()


def loaded(name: str, uri: str, **task: object) -> list[tuple[Item, dict[str, bytes]]]:
    """The items of the files with their pictures, in the order of their ids."""
    knobs = {"data.uri": uri, "data.split_mode": "ratio", "data.split_ratio": "1:1:1"}
    knobs |= {f"task.{key}": value for key, value in task.items()}  # type: ignore[misc]
    config = TrainConfig.from_layers(benchmark_config(name).model_dump(), nest(knobs))
    adapter = benchmarks.load(name, config.task)
    files = DataFiles.of(config.data, benchmarks.folder(name), cast("None", None))
    items = [item for split in DATA_SPLITS for item in first_items(name, adapter, config, split, 9, cast("None", None))]
    return sorted(((item, files.contents(item.files)) for item in items), key=lambda pair: pair[0].id)
