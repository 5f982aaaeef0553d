"""Moving the champion back to an earlier version."""

import logging
from typing import TYPE_CHECKING

from skillopt_airflow.core.errors import ConfigError, ObjectMissing, StoreError, StoreUnavailable
from skillopt_airflow.core.types import Value
from skillopt_airflow.store.aliases import Alias
from skillopt_airflow.training.approval import rollback_body

if TYPE_CHECKING:
    from skillopt_airflow.store.artifacts import ArtifactStore

log = logging.getLogger(__name__)


class RollbackRequest(Value):
    """A request to roll back that was checked."""

    run: str
    """The DAG run that asked."""
    version: str
    reason: str
    approval: bool
    """True if a person has to approve."""
    seen: Alias
    """The champion that is to be left."""


def rollback_request(
    artifacts: "ArtifactStore", run: str, version: str, reason: str, approval: bool, leaving: str | None = None
) -> RollbackRequest:
    """Check what is asked for.

    Raises:
        ConfigError: there is no champion, it is the wanted version already or not the one to be left, or the wanted
            version does not exist.
        StoreError: the wanted version was tampered with.
    """
    champion = artifacts.champion.read()
    if champion is None:
        raise ConfigError("version: nothing is published for this benchmark and target, so nothing can be rolled back")
    if champion.version == version:
        raise ConfigError(f"version: {version} is the champion already")
    if leaving is not None and champion.version != leaving:
        raise ConfigError(f"leaving: {leaving} is not the champion any more, {champion.version} is")
    try:
        artifacts.read(version)
    except ObjectMissing:
        there = ", ".join(artifacts.list_versions())
        raise ConfigError(f"version: {version} is not a complete version; there are: {there}") from None
    return RollbackRequest(run=run, version=version, reason=reason, approval=approval, seen=champion)


def describe(artifacts: "ArtifactStore", request: RollbackRequest) -> str:
    """Return what the person who has to approve it sees, also of a champion whose text was changed or lost."""
    before, problem = "", ""
    try:
        before = artifacts.read(request.seen.version).skill
    except StoreUnavailable:
        raise
    except StoreError as error:
        problem = f"The present champion cannot be read: {error}\n\n"
    after, history = artifacts.read(request.version).skill, artifacts.champion.history()
    return problem + rollback_body(request.seen, request.version, request.reason, before, after, history)


def roll_back(artifacts: "ArtifactStore", request: RollbackRequest) -> Alias:
    """Move the champion; safe to repeat.

    Raises:
        Conflict: somebody moved it since the request.
    """
    alias = artifacts.roll_back(request.version, request.run, request.reason, request.seen)
    log.info("champion %s, before %s: %s", alias.version, alias.previous, alias.reason)
    for move in artifacts.champion.history():
        log.info("move %d, %s: %s, %s", move.sequence, move.moved.isoformat(), move.version, move.reason)
    return alias
