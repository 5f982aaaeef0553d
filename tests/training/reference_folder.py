"""A small output folder in the reference implementation's layout."""

import json
from pathlib import Path
from typing import Any

from tests.training.in_process import PROJECT

SEED = (PROJECT / "skills" / "searchqa" / "initial.md").read_text(encoding="utf-8")
STEP = SEED + "\n- Skip every candidate that only repeats words of the clue.\n"
BEST = STEP + "\n- Ignore names of websites, months and other boilerplate of result pages.\n"
LAST = BEST + "\n<!-- SLOW_UPDATE_START -->\nKeep it short.\n<!-- SLOW_UPDATE_END -->\n"
CONFIG: dict[str, Any] = {
    "env": "searchqa",
    "target_model": "gpt-5.5",
    "optimizer_model": "gpt-5.5",
    "edit_budget": 6,
    "num_epochs": 2,
    "target_backend": "openai_chat",
    "azure_openai_api_key": "distinctive-secret",
    "split_dir": "",
}
SUMMARY = {"baseline_test_hard": 0.4, "test_hard": 0.6, "best_selection_hard": 0.7, "version": "skillopt-0.1.0"}


def step(number: int, action: str, score: float) -> dict[str, Any]:
    return {
        "step": number,
        "epoch": 1,
        "action": action,
        "selection_hard": score,
        "selection_soft": score,
        "current_score": score,
        "best_score": score,
        "edit_budget": None,
        "timing": {"rollout_s": 1.0},
    }


def write(folder: Path, **config: Any) -> Path:
    """Write the folder; return it."""
    (folder / "skills").mkdir(parents=True)
    for number, text in enumerate((SEED, STEP, STEP, BEST, LAST)):
        (folder / "skills" / f"skill_v{number:04d}.md").write_text(text, encoding="utf-8")
    (folder / "best_skill.md").write_text(BEST, encoding="utf-8")
    steps = [step(1, "accept_new_best", 0.5), step(2, "reject", 0.4), step(3, "accept_new_best", 0.7)]
    for name, document in (("config", CONFIG | config), ("history", steps), ("summary", SUMMARY)):
        (folder / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
    return folder
