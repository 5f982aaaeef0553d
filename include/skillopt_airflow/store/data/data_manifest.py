"""The manifest of a run's data, which shows whether two runs are comparable."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from skillopt_airflow.core.config.resource_groups import DataGroup
from skillopt_airflow.core.gate.item_scores import count_groups
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.types import Item, Split, Value, items_fingerprint


class SplitManifest(Value):
    count: int
    fingerprint: str
    """See `items_fingerprint`."""
    ids: tuple[str, ...]
    """IDs of the items in the split's order."""
    groups: int | None = None
    """Number of the items' groups; None if the items are independent."""


class DataManifest(Document):
    """The splits, and the settings that produced them."""

    uri: str
    split_mode: str
    split_ratio: str | None
    """None unless a file was cut by ratio."""
    split_seed: int | None
    """None unless a file was cut by ratio."""
    limit: int | None
    split_manifest: str = ""
    """URL of the manifest that listed the items, if any."""
    splits: dict[Split, SplitManifest]


def _ids(listed: Any) -> Any:
    return [one.get("id") if isinstance(one, dict) else one for one in listed] if isinstance(listed, list) else listed


class ListedItems(BaseModel):
    """The wanted items of one split."""

    # Records may have integers as IDs, so the list may, too.
    model_config = ConfigDict(coerce_numbers_to_str=True)

    ids: Annotated[tuple[str, ...], BeforeValidator(_ids)]
    """IDs in the split's order; the input may contain objects with an `id`."""
    fingerprint: str = ""
    """The expected `items_fingerprint`, or empty."""


class SplitList(BaseModel):
    """The part of a manifest, from a run or written by hand, that reproduces the splits of a dataset."""

    contract: int = Field(default=1, le=DataManifest.contract)
    splits: dict[Split, ListedItems]


def data_manifest(data: DataGroup, splits: Mapping[Split, Sequence[Item]]) -> DataManifest:
    cut = data.split_mode == "ratio"
    return DataManifest(
        uri=data.uri,
        split_mode=data.split_mode,
        split_ratio=data.split_ratio if cut else None,
        split_seed=data.split_seed if cut else None,
        limit=data.limit,
        split_manifest=data.split_manifest if data.split_manifest is not None else "",
        splits={
            split: SplitManifest(
                count=len(items),
                fingerprint=items_fingerprint(item.fingerprint for item in items),
                ids=tuple(item.id for item in items),
                groups=count_groups([item.group for item in items]),
            )
            for split, items in splits.items()
        },
    )
