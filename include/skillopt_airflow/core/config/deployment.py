"""An administrator's settings for an Airflow deployment: defaults of knobs, and limits on the requests of runs."""

import posixpath
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import Field, model_validator

from skillopt_airflow.core.config.group import Group
from skillopt_airflow.core.config.train_config import TrainConfig

CONNECTIONS = (
    "model.target_conn_id",
    "model.optimizer_conn_id",
    "search.conn_id",
    "sandbox.conn_id",
    "storage.conn_id",
)
IMAGES = ("sandbox.image", "sandbox.registry", "sandbox.item_registry")
BUCKETS = ("bucket", "artifact_bucket")
ADDRESSES = ("data.uri", "data.corpus", "data.split_manifest", "regate.fresh_uri", "train.init_skill")
HOST_LIMITS = ("model.concurrency", "sandbox.code_timeout", "sandbox.cpus", "sandbox.memory", "sandbox.output_mb")
"""Limits on a run's use of shared hosts, which a run can only lower."""
_SIZES = {"k": 1, "m": 1024, "g": 1024**2}
S3 = "s3://"


class Allowed(Group):
    """Patterns of resources that a run may name in addition to its benchmark's; `*` matches any characters."""

    connections: tuple[str, ...] = ()
    """Ids of Airflow connections: of models, the object store, search servers, Docker engines and clusters."""
    storage: tuple[str, ...] = ()
    """Locations for runs and skills, such as s3://team-a/*."""
    data: tuple[str, ...] = ()
    """Addresses of datasets, corpora and skills: s3://... URLs, or paths on the workers without `..`."""
    images: tuple[str, ...] = ()
    unapproved: bool = False
    """True if runs may publish, and nights roll back, without the approval that the benchmark requires."""

    @model_validator(mode="before")
    @classmethod
    def _everything(cls, given: Any) -> Any:
        if isinstance(given, str) and given != "everything":
            raise ValueError("expected patterns by kind, or everything")
        return dict.fromkeys(cls.model_fields, ("*",)) | {"unapproved": True} if given == "everything" else given


class Deployment(Group):
    """The administrator's file."""

    defaults: dict[str, Any] = Field(default_factory=dict)
    """Knobs by group; benchmark.yaml takes precedence."""
    allowed: Allowed = Allowed()
    """Resources that a run may name in addition to those in benchmark.yaml and these defaults."""
    shared_folders: tuple[str, ...] = ()
    """Patterns of paths that all hosts share, for data outside S3."""


def disallowed_knobs(asked: TrainConfig, own: TrainConfig, allowed: Allowed) -> list[str]:
    """Return a sentence for each knob whose value a run may not choose.

    Any run may use the values of `own`, the configuration of the benchmark or of the finished run that is repeated.
    """
    return [
        *_unlisted(CONNECTIONS, "connections", allowed.connections, asked, own),
        *_unlisted(IMAGES, "images", allowed.images, asked, own),
        *_raised(asked, own),
        *_foreign_buckets(asked, own, allowed.storage),
        *(
            sentence
            for path in ADDRESSES
            if _value(asked, path) != _value(own, path)
            for sentence in address_not_allowed(path, _value(asked, path), allowed)
        ),
        *_unapproved(asked, own, allowed),
    ]


def address_not_allowed(path: str, address: str, allowed: Allowed) -> list[str]:
    """Return a sentence about the address of data or a skill in the knob `path` if it isn't allowed; else nothing.

    Paths below the benchmark's folder are allowed, and so are values that aren't addresses, such as a skill's text.
    """
    if path not in ADDRESSES[:-1] and not address.startswith(S3):
        return []
    meant = plain_address(address)
    is_own = not meant.startswith(("/", "..")) and "://" not in meant
    if not address or is_own or _matches(meant, allowed.data):
        return []
    return [_sentence(path, meant, "data", allowed.data)]


def images_not_allowed(names: Sequence[str], registry: str, allowed: Allowed) -> list[str]:
    """Return a sentence for each image in records that runs may not pull.

    `allowed.images` must match names with a registry's host; if it has any patterns, it must match all names. With a
    `registry`, the prefix of the names, only that knob is checked.
    """
    if registry:
        return []
    return [
        f"the data names the image {name!r}. Set sandbox.item_registry, or ask an administrator to list the image in "
        "allowed.images"
        for name in names
        if (allowed.images or _has_host(name)) and not _matches(name, allowed.images)
    ]


def _has_host(image: str) -> bool:
    first, slash, _ = image.partition("/")
    return bool(slash) and (first == "localhost" or not {".", ":"}.isdisjoint(first))


def _unlisted(
    paths: Sequence[str], kind: str, patterns: Sequence[str], asked: TrainConfig, own: TrainConfig
) -> Iterator[str]:
    for path in paths:
        value = _value(asked, path)
        if value != _value(own, path) and not _matches(value, patterns):
            yield _sentence(path, value, kind, patterns)


def _raised(asked: TrainConfig, own: TrainConfig) -> Iterator[str]:
    for path in HOST_LIMITS:
        value, most = _value(asked, path), _value(own, path)
        if _amount(value) > _amount(most):
            yield (
                f"{path} = {value}: a run can't raise this limit of the hosts above {most}. Raise it in "
                "benchmark.yaml, or in the defaults of the administrator's file"
            )


def _amount(limit: str) -> float:
    return float(limit[:-1]) * _SIZES[limit[-1]] if limit[-1] in _SIZES else float(limit)


def _foreign_buckets(asked: TrainConfig, own: TrainConfig, patterns: Sequence[str]) -> Iterator[str]:
    for bucket in BUCKETS:
        place, before = (f"{S3}{getattr(each.storage, bucket)}/{each.storage.prefix}" for each in (asked, own))
        if place != before and not _matches(place, patterns):
            yield _sentence(f"storage.{bucket} and storage.prefix", place, "storage", patterns)


def _unapproved(asked: TrainConfig, own: TrainConfig, allowed: Allowed) -> Iterator[str]:
    if not own.publishing.approval or allowed.unapproved:
        return
    advice = "Ask an administrator to set allowed.unapproved"
    if not asked.publishing.approval:
        yield f"publishing.approval = False: the benchmark requires approval. {advice}"
    if asked.regate.on_demote == "rollback" != own.regate.on_demote:
        yield f"regate.on_demote = 'rollback': the benchmark requires approval, and nights don't wait for it. {advice}"


def _sentence(path: str, value: str, kind: str, patterns: Sequence[str]) -> str:
    listed = f"allowed.{kind} has {', '.join(patterns) or 'nothing'}"
    return f"{path} = {value!r}: neither benchmark.yaml names it nor an administrator allows it; {listed}"


def _matches(value: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(value, pattern) for pattern in patterns)


def plain_address(address: str) -> str:
    """Return an address with `..` resolved, and a file:// URL as its path."""
    scheme, found, rest = address.partition("://")
    if not found:
        return posixpath.normpath(address)
    parts = urlsplit(address)
    if parts.scheme == "file" and parts.netloc in {"", "localhost"}:
        return posixpath.normpath(unquote(parts.path))
    return f"{scheme}://{posixpath.normpath(rest)}"


def _value(config: TrainConfig, path: str) -> str:
    group, key = path.split(".")
    value = getattr(getattr(config, group), key)
    return "" if value is None else str(value)
