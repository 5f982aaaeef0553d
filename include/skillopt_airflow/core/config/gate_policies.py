"""The gate policies by name: the rules for accepting a candidate."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

GATE_POLICIES: Mapping[str, str] = {
    "strict": "skillopt_airflow.core.gate.policies:STRICT",
    "exact_paired": "skillopt_airflow.core.gate.policies:EXACT_PAIRED",
}
"""The place of each `Policy`, as module:name."""

if TYPE_CHECKING:
    PolicyName = str
else:
    PolicyName = Literal[tuple(GATE_POLICIES)]
