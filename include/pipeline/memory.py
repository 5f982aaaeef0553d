"""Optimizer answers that survive a retry: a call that was answered once is not paid again."""

from collections.abc import Callable
from threading import Lock

from pydantic import ValidationError

from include.core.errors import ObjectMissing
from include.core.ports import Optimizer, Output
from include.core.types import canonical_json, sha256
from include.store.objects import ObjectStore


class RememberingOptimizer:
    """An `Optimizer` that stores each answer under the hash of its question, and connects only for a new one."""

    def __init__(self, connect: Callable[[], Optimizer], model: str, store: ObjectStore, folder: str) -> None:
        self._connect = connect
        self._model = model
        self._store = store
        self._folder = folder
        self._lock = Lock()
        self._inner: Optimizer | None = None

    def ask(self, stage: str, instructions: str, prompt: str, output_type: type[Output]) -> Output:
        """The stored answer to the same question to the same model, or a new call."""
        question = canonical_json([self._model, instructions, prompt, output_type.model_json_schema()])
        key = f"{self._folder}{stage}-{sha256(question)[:16]}.json"
        try:
            return output_type.model_validate_json(self._store.get_bytes(key))
        except (ObjectMissing, ValidationError):
            answer = self._optimizer().ask(stage, instructions, prompt, output_type)
        self._store.put_model(key, answer)
        return answer

    def _optimizer(self) -> Optimizer:
        with self._lock:
            if self._inner is None:
                self._inner = self._connect()
            return self._inner
