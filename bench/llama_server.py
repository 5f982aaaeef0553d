"""Serve a GGUF file with llama.cpp and print the URL; runs in the environment of llama.py."""

import sys
import threading

from xllamacpp import CommonParams, Server

SLOTS = 4
TOKENS_PER_SLOT = 8192


def main(weights: str) -> None:
    parameters = CommonParams()
    parameters.model.path = weights
    parameters.n_parallel = SLOTS
    parameters.n_ctx = SLOTS * TOKENS_PER_SLOT
    parameters.use_jinja = True
    parameters.port = 0
    server = Server(parameters)
    print(server.listening_address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1])
