"""`make real MODEL=/path/to/model.gguf`: train examples/ledger with a real language model on this machine."""

import argparse
import hashlib
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import llama
from bench.real_place import place
from local.home import PROJECT
from skillopt_airflow.core.errors import PlatformError, SkillOptError

LOCAL = PROJECT / ".local"
NO_MODEL = """MODEL is not set. Name a GGUF file, or the URL of an OpenAI-compatible server that is running:

  make real MODEL=/path/to/model.gguf
  make real MODEL=http://127.0.0.1:8000/v1

A small open model is Qwen2.5-Coder-1.5B-Instruct (Apache-2.0, 1.1 GB):
https://huggingface.co/Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF has the file qwen2.5-coder-1.5b-instruct-q4_k_m.gguf."""


def main(arguments: list[str]) -> int:
    """Train with the model; return 0 if the table is written."""
    parser = argparse.ArgumentParser(prog="python -m bench.real_model", description=__doc__)
    parser.add_argument("model", nargs="?", default="", help="GGUF file, or base URL of a server")
    parser.add_argument("--seeds", type=int, default=2, help="trainings, each with another seed (default: %(default)s)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="such as model.max_tokens=300")
    options = parser.parse_args(arguments)
    if not options.model:
        print(NO_MODEL, file=sys.stderr)
        return 2
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stdout)
    logging.getLogger("skillopt_airflow").setLevel(logging.INFO)
    try:
        with serve(options.model) as (address, model), place(LOCAL / "real", address, model) as variables:
            os.environ.update(variables)
            # Airflow reads the environment when it's imported.
            from bench import real_training

            real_training.measure(model, description(options.model), options.seeds, options.set)
    except SkillOptError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


@contextmanager
def serve(model: str) -> Iterator[tuple[str, str]]:
    """Yield the base URL of a model's server, and the model's name for knobs.

    Raises:
        PlatformError: the file doesn't exist, or llama.cpp can't serve it.
    """
    if model.startswith(("http://", "https://")):
        yield model, "openai-chat:local"
        return
    weights = Path(model)
    if not weights.is_file():
        raise PlatformError(f"MODEL = {model}: no such file. Name a GGUF file.")
    LOCAL.mkdir(exist_ok=True)
    with llama.serve(llama.install(LOCAL / "llama"), weights, LOCAL / "llama.log") as address:
        yield address, f"openai-chat:{weights.stem.lower()}"


def description(model: str) -> str:
    """Return the model's name for the table; for a file, with its SHA-256 prefix."""
    if not Path(model).is_file():
        return model
    with Path(model).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return f"{Path(model).name} (SHA-256 {digest[:16]}), served by llama.cpp,"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
