"""Find a skill by the name that a user gives, with the origins of its lines."""

from typing import TYPE_CHECKING, NamedTuple

from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.values.provenance import LineOrigin
from skillopt_airflow.core.values.skill import SkillDocument, skill_of_person

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from skillopt_airflow.store.artifacts import ArtifactStore


class NamedSkill(NamedTuple):
    """A skill found by its name."""

    document: SkillDocument
    version: str = ""
    """Its published version; empty if it isn't published."""
    run: str = ""
    """The run that trained the version."""
    lines: tuple[LineOrigin, ...] = ()
    """Origins of the version's lines."""


def find_skill(asked: str, seed: SkillDocument, artifacts: "ArtifactStore", client: "S3Client") -> NamedSkill:
    """Find the skill that a user named.

    Args:
        asked: `seed`, `champion`, a version such as `v0003-0123456789ab`, an `s3://` URL, or a skill's text.

    Raises:
        ConfigError: the name is invalid, or there is no champion.
        SkillError: the text has hidden characters or commands.
        StoreError: nothing is stored under the version or URL.
    """
    from skillopt_airflow.store.artifacts import is_version
    from skillopt_airflow.store.objects import ObjectStore

    if asked == "seed":
        return NamedSkill(seed)
    if asked == "champion":
        champion = artifacts.champion.read()
        if champion is None:
            raise ConfigError("skill champion: nothing is published for this benchmark and target yet")
        return _published(champion.version, artifacts)
    if is_version(asked):
        return _published(asked, artifacts)
    if asked.startswith("s3://"):
        bucket, _, key = asked.removeprefix("s3://").partition("/")
        return NamedSkill(skill_of_person(ObjectStore(client, bucket).get_text(key), asked))
    if any(character.isspace() for character in asked.strip()):
        return NamedSkill(skill_of_person(asked, "the text of the skill"))
    raise ConfigError(
        f"skill {asked!r}: expected seed, champion, a version such as v0003-0123456789ab, an s3:// URL, or the "
        "text of a skill"
    )


def _published(version: str, artifacts: "ArtifactStore") -> NamedSkill:
    found = artifacts.read(version)
    return NamedSkill(SkillDocument(found.skill), version, found.manifest.run, found.manifest.lines)
