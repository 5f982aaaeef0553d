"""Archives as a container may leave them."""

import io
import tarfile


def member(name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, len(content), "/etc/passwd"
    return info, content


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w:") as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return body.getvalue()
