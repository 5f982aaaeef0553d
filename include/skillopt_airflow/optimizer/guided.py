"""The guidance of a benchmark: what its author says about it, as a section of the optimizer's prompts."""

from collections.abc import Mapping

from skillopt_airflow.core.pictures import NO_PICTURES, Pictures
from skillopt_airflow.core.protocols import Optimizer, Output
from skillopt_airflow.optimizer.sections import prompt_of, section


class GuidedOptimizer:
    """An `Optimizer` that adds the benchmark's guidance on a stage to the prompt.

    Args:
        optimizer: the one to ask.
        guidance: texts by stage; that of `reflect` is for every kind of reflection on a minibatch, that of `merge` for
            every kind of merge.
    """

    def __init__(self, optimizer: Optimizer, guidance: Mapping[str, str]) -> None:
        self._optimizer = optimizer
        self._guidance = guidance

    def ask(
        self, stage: str, instructions: str, prompt: str, output_type: type[Output], pictures: Pictures = NO_PICTURES
    ) -> Output:
        """Ask with the guidance; raise as the optimizer does."""
        kind = stage.partition("_")[0]
        text = self._guidance.get(kind if kind in ("reflect", "merge") else stage)
        guided = prompt if text is None else prompt_of(prompt, section("benchmark_guidance", text))
        return self._optimizer.ask(stage, instructions, guided, output_type, pictures)
