"""The matrices of a benchmark, each as document, table and Markdown, with an index by skill."""

from typing import TYPE_CHECKING, Any

from skillopt_airflow.core.run.skill_matrix import MatrixRow, SkillMatrix
from skillopt_airflow.store.keys import MatrixKeys

if TYPE_CHECKING:
    from skillopt_airflow.store.objects import ObjectStore


class MatrixTable:
    def __init__(self, store: "ObjectStore", keys: MatrixKeys) -> None:
        self._store = store
        self._keys = keys

    def save(self, matrix: SkillMatrix, markdown: str) -> str:
        """Write a run's matrix, replacing its previous one, and return the document's key."""
        from skillopt_airflow.store.tables.parquet import to_parquet

        keys, run = self._keys, matrix.run
        self._store.put_bytes(keys.table(run), to_parquet(rows_of(matrix)))
        self._store.put_text(keys.markdown(run), markdown)
        self._store.put_model(keys.matrix(run), matrix)
        # Last, so that the index never names a missing matrix.
        for sha256 in dict.fromkeys(skill.sha256 for skill in matrix.skills):
            self._store.put_bytes(keys.naming(sha256, matrix.created, run), b"")
        return keys.matrix(run)

    def read(self, run: str) -> SkillMatrix:
        return self._store.get_model(self._keys.matrix(run), SkillMatrix)

    def of_skill(self, sha256: str, limit: int) -> list[SkillMatrix]:
        """Return at most `limit` matrices with a skill, the newest first."""
        prefix = self._keys.of_skill(sha256)
        listed = [key.removeprefix(prefix).partition("-")[2] for key in reversed(self._store.list_keys(prefix))]
        runs = list(dict.fromkeys(listed))[:limit]
        matrices = (self._store.find_model(self._keys.matrix(run), SkillMatrix) for run in runs)
        # A run that was prepared again may have compared other skills.
        return [one for one in matrices if one is not None and any(skill.sha256 == sha256 for skill in one.skills)]


def rows_of(matrix: SkillMatrix) -> Any:
    """Return the matrix as an Arrow table with one row per skill and cell; unknown values are null."""
    import pyarrow as pa

    text, number, count = pa.string(), pa.float64(), pa.int64()
    kinds = {
        **dict.fromkeys(("target", "harness", "skill", "version", "skill_sha256"), text),
        "created": pa.timestamp("us", tz="UTC"),
        **dict.fromkeys(("split", "metric"), text),
        **dict.fromkeys(("score", "low", "high"), number),
        "items": count,
        "coverage": number,
        **dict.fromkeys(("reason", "policy", "verdict", "against"), text),
        **dict.fromkeys(("delta", "delta_low", "delta_high"), number),
        **dict.fromkeys(("wins", "losses", "ties", "rollouts", "calls", "prompt_tokens", "completion_tokens"), count),
        "usd": number,
    }
    return pa.Table.from_pylist([_record(matrix, row) for row in matrix.rows()], schema=pa.schema(kinds.items()))


def _record(matrix: SkillMatrix, row: MatrixRow) -> dict[str, Any]:
    cell, skill, result = row
    record = {
        "target": cell.target,
        "harness": cell.harness,
        "skill": skill.source,
        "version": skill.version,
        "skill_sha256": skill.sha256,
        "created": matrix.created,
        "split": cell.split.value,
        "metric": matrix.metric,
        "reason": None if result.reason is None else str(result.reason),
        "policy": matrix.policy,
        "verdict": None if result.verdict is None else result.verdict.action.value,
        **result.model_dump(include={"score", "low", "high", "items", "coverage"}),
        **result.cost.model_dump(),
    }
    table = result.against_first
    if table is None:
        return record
    signs = table.model_dump(include={"wins", "losses", "ties"})
    ends = {"delta": table.delta, "delta_low": table.low, "delta_high": table.high}
    return record | signs | ends | {"against": matrix.skills[0].source}
