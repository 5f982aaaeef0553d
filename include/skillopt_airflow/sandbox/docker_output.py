"""The output of a container, or of a command in one, as Docker's client has attached to it."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

STDOUT = 1
HEADER = struct.Struct(">BxxxL")
"""The number of the stream and the length of what follows (Docker Engine API, "Attach to a container")."""


@contextmanager
def attached(stream: Any) -> Iterator[Iterator[tuple[int, bytes]]]:
    """Yield the frames of an attached stream until its end, each with its number; close the connection in any case.

    The client's own iterator waits for the socket alone, and so misses what was read from it before: the first frame,
    if it came together with the answer's headers, and over TLS the rest of a record.
    """
    try:
        yield _frames(stream._response.raw._fp.fp)
    finally:
        # The client leaves the connection open at the end of the output, and its own `close` leaves a reader.
        with suppress(OSError):
            # It shuts down what the engine may have closed already.
            stream.close()
        stream._response.close()


def _frames(reader: Any) -> Iterator[tuple[int, bytes]]:
    # A container may say nothing for longer than a request may take.
    reader.raw._sock.settimeout(None)
    # A connection that breaks off ends the output; what became of the container is asked afterwards.
    with suppress(OSError):
        while len(header := reader.read(HEADER.size)) == HEADER.size:
            number, length = HEADER.unpack(header)
            yield number, reader.read(length)
