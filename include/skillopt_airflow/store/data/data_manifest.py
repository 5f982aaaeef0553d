"""The data that a run was made from, by which runs are comparable or not."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from skillopt_airflow.core.config.resource_groups import DataGroup
from skillopt_airflow.core.gate.item_scores import count_groups
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.types import Item, Split, Value, items_fingerprint


class SplitManifest(Value):
    """The items of one split."""

    count: int
    fingerprint: str
    """See `items_fingerprint`."""
    ids: tuple[str, ...]
    """Ids of the items in the split's order."""
    groups: int | None = None
    """Groups that the items come from; None if they have none, and are taken as independent of each other."""


class DataManifest(Document):
    """The splits, and the settings that they were cut with."""

    uri: str
    split_mode: str
    split_ratio: str | None
    """None unless a file was cut by ratio."""
    split_seed: int | None
    """None unless a file was cut by ratio."""
    limit: int | None
    split_manifest: str = ""
    """Address of the manifest that listed the items, if one did."""
    splits: dict[Split, SplitManifest]


def _ids(listed: Any) -> Any:
    return [one.get("id") if isinstance(one, dict) else one for one in listed] if isinstance(listed, list) else listed


class ListedItems(BaseModel):
    """The items of one split, as whoever wants them lists them."""

    # Records may have whole numbers as ids, and so may the list.
    model_config = ConfigDict(coerce_numbers_to_str=True)

    ids: Annotated[tuple[str, ...], BeforeValidator(_ids)]
    """In the split's order; a list may have objects with an id."""
    fingerprint: str = ""
    """What they were, see `items_fingerprint`; empty where nobody says."""


class SplitList(BaseModel):
    """The part of a manifest, of a run or written by hand, by which a data set is split in the same way."""

    contract: int = Field(default=1, le=DataManifest.contract)
    splits: dict[Split, ListedItems]


def data_manifest(data: DataGroup, splits: Mapping[Split, Sequence[Item]]) -> DataManifest:
    """Return the manifest of the splits that `data` led to."""
    cut = data.split_mode == "ratio"
    return DataManifest(
        uri=data.uri,
        split_mode=data.split_mode,
        split_ratio=data.split_ratio if cut else None,
        split_seed=data.split_seed if cut else None,
        limit=data.limit,
        split_manifest=data.split_manifest if data.split_manifest is not None else "",
        splits={split: _split_manifest(items) for split, items in splits.items()},
    )


def _split_manifest(items: Sequence[Item]) -> SplitManifest:
    return SplitManifest(
        count=len(items),
        fingerprint=items_fingerprint(item.fingerprint for item in items),
        ids=tuple(item.id for item in items),
        groups=count_groups([item.group for item in items]),
    )
