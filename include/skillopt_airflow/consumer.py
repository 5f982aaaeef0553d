"""Follow a published skill from a deployment. Copy this file; it needs only Python 3.11+ and boto3, on Linux or macOS.

As a library, use `SkillClient(bucket, benchmark, target).get()` or `.watch(seconds, stop)`; as a program,
`python consumer.py fetch --help`. docs/consumption.md describes the format. Credentials and region come from boto3's
default chain. The bucket's content is untrusted: names are checked before they become keys or paths.
"""

import argparse
import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

CONTRACT = 1
FORMS = ("files", "skill-folder", "claude-code-skill")
_VERSION = re.compile(r"v\d{1,9}-([0-9a-f]{12})")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SKILL_NAME = re.compile(r"(?=.{1,64}$)[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_DESCRIPTION = 1024
_ESCAPED = re.compile(r"(?<=-)-|[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_HIDDEN = re.compile(r"\A---\n.*?\n---$|<!--.*?(?:-->|\Z)|^ *(```|~~~).*?(?:^ *\1|\Z)", re.DOTALL | re.MULTILINE)
"""Front matter, comments and code blocks."""
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.*?\w.*)$", re.MULTILINE)
_BREAK = re.compile(r"\n\s*\n|\n?^\s*(?:[-*+]|\d+[.)])\s+", re.MULTILINE)
_MARKS = re.compile(r"\*(?!\s)|(?<=\S)\*|[`<>\x00-\x08\x0e-\x1f\x7f-\x9f]|!?\[([^\]]*)\]\([^)]*\)")
"""Markdown syntax, characters that a description can't have, and links."""
_MAX_BYTES = {"alias": 1 << 16, "skill": 1 << 20, "manifest": 1 << 26}

log = logging.getLogger("skill_consumer")


class SkillError(Exception):
    """The current skill can't be served; `exit_code` is the program's."""

    exit_code: ClassVar[int] = 1


class Unavailable(SkillError):
    """The bucket didn't answer in time, or denied access."""

    exit_code = 3


class Tampered(SkillError):
    """The bucket's content differs from the published skill."""

    exit_code = 4


class OutputError(SkillError):
    """The folder cannot be written."""

    exit_code = 5


class NotPublished(SkillError):
    """The alias does not exist."""

    exit_code = 6


@dataclass(frozen=True)
class Skill:
    """A verified version, and the time at which the alias last pointed to it."""

    text: str
    """best_skill.md, byte for byte (UTF-8)."""
    version: str
    sha256: str
    sequence: int
    """Number of the alias's move, which increases."""
    moved: str
    """Time of the alias's move to this version, ISO 8601, UTC."""
    etag: str
    """ETag of the alias."""
    confirmed: float = 0.0
    """Unix time at which the bucket last confirmed that the alias points to this version."""
    problem: str = ""
    """Reason why the last confirmation or caching failed; empty if both succeeded."""

    @property
    def age(self) -> float:
        return max(0.0, time.time() - self.confirmed)


class SkillClient:
    """Resolves an alias to a verified skill. Threads can share a client, and processes can share its cache."""

    def __init__(
        self,
        bucket: str,
        benchmark: str,
        target: str,
        *,
        alias: str = "champion",
        prefix: str = "",
        endpoint_url: str | None = None,
        cache: Path | None = None,
        timeout: float = 10.0,
    ) -> None:
        """Configure the client without reading anything.

        Args:
            bucket: bucket of the published skills (`storage.artifact_bucket`).
            benchmark: name of the benchmark.
            target: name of the published target model, such as `openai-chat:gpt-5-mini`.
            alias: the alias to follow.
            prefix: prefix of all keys (`storage.prefix`).
            endpoint_url: URL of an S3-compatible server. Default: boto3's.
            cache: folder for the last good skill. Default: `$XDG_CACHE_HOME/skillopt` or `~/.cache/skillopt`.
            timeout: limit of a check of the bucket in seconds.

        Raises:
            ValueError: the name of the alias is invalid.
        """
        if _NAME.fullmatch(alias) is None:
            raise ValueError(f"{alias!r} isn't a valid name of an alias")
        root = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self.benchmark, self.target, self.timeout = benchmark, target, timeout
        self._bucket, self._alias = bucket, alias
        self._folder = f"{root}skills/{_quoted(benchmark)}/{_quoted(target)}/"
        self._endpoint = endpoint_url
        endpoint = endpoint_url or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "skillopt"
        self._cache = _Cache(cache or home, f"{endpoint} {bucket} {self._folder} {alias}")
        self._turn = threading.Lock()
        self._looked = 0.0
        """End of the last check, by the monotonic clock."""
        self._looking = threading.Thread()
        self._s3: S3Client | None = None
        self._last: Skill | None = None
        # The import takes a second, which shouldn't count toward a timeout.
        import boto3  # noqa: F401

    def get(self) -> Skill:
        """Return the alias's current skill; if that fails, the last good one, with the reason in `problem`.

        Concurrent threads share one check.

        Raises:
            SkillError: the check failed, and there is no last good skill.
        """
        asked = time.monotonic()
        with self._turn:
            if self._last is not None and self._looked >= asked:
                return self._last
            last = self._cache.load() if self._last is None else self._last
            try:
                self._last = self._cache.save(self._within_timeout(last))
            except SkillError as error:
                if last is None:
                    raise
                self._last = replace(last, problem=str(error))
            self._looked = time.monotonic()
            return self._last

    def watch(self, interval: float, stop: threading.Event) -> Iterator[Skill]:
        """Yield the skill now, and whenever its version changes or a problem appears or ends, until `stop` is set.

        An unchanged alias costs one conditional GET (304) every `interval` seconds.

        Raises:
            SkillError: the first check failed, and there is no last good skill.
        """
        seen: tuple[str, bool] | None = None
        while not stop.is_set():
            skill = self.get()
            if (skill.version, bool(skill.problem)) != seen:
                seen = (skill.version, bool(skill.problem))
                yield skill
            stop.wait(interval)

    def _within_timeout(self, last: Skill | None) -> Skill:
        """Check the bucket with a total timeout: boto3's timeouts don't catch a server that drips bytes."""
        if self._looking.is_alive():
            raise Unavailable("the bucket hasn't answered the previous request yet")
        outcome: list[Skill | Exception] = []

        def attempt() -> None:
            try:
                outcome.append(self._look(last))
            except Exception as error:  # noqa: BLE001 - handed over to the caller's thread
                outcome.append(error)

        self._looking = threading.Thread(target=attempt, daemon=True)
        self._looking.start()
        self._looking.join(self.timeout)
        if not outcome:
            raise Unavailable(f"the bucket did not answer within {self.timeout:g} s")
        [found] = outcome
        if isinstance(found, Skill):
            return found
        if isinstance(found, SkillError | ValueError):
            raise found
        # For example a TLS error during a response, which boto3 doesn't translate.
        raise Unavailable(f"{type(found).__name__}: {found}") from found

    def _look(self, last: Skill | None) -> Skill:
        key = f"{self._folder}aliases/{self._alias}.json"
        found = self._read(key, "alias", "" if last is None else last.etag)
        if found is None:
            if last is None:
                raise Unavailable(f"{self._address(key)}: answered 304 to a plain GET")
            return replace(last, confirmed=time.time(), problem="")
        wanted = self._alias_of(key, *found)
        if last is not None and wanted.sha256 == last.sha256:
            return replace(wanted, text=last.text)
        return replace(wanted, text=self._text(wanted))

    def _alias_of(self, key: str, body: bytes, etag: str) -> Skill:
        alias, address = _fields(body, self._address(key)), self._address(key)
        version, digest = str(alias.get("version")), str(alias.get("sha256"))
        sequence = alias.get("sequence", 0)
        named = _VERSION.fullmatch(version)
        if named is None or _SHA256.fullmatch(digest) is None or named[1] != digest[:12]:
            raise Tampered(f"{address} names version {version!r} with SHA-256 {digest!r}, which don't match")
        if not isinstance(sequence, int) or sequence < 0:
            raise Tampered(f"{address} has sequence {sequence!r}")
        return Skill("", version, digest, sequence, str(alias.get("moved", "")), etag, time.time())

    def _text(self, wanted: Skill) -> str:
        folder = f"{self._folder}versions/{wanted.version}/"
        body, manifest = self._object(f"{folder}best_skill.md", "skill"), f"{folder}manifest.json"
        published = _fields(self._object(manifest, "manifest"), self._address(manifest))
        expected = {"version": wanted.version, "sha256": wanted.sha256}
        expected |= {"benchmark": self.benchmark, "target": self.target}
        for field, value in expected.items():
            if published.get(field) != value:
                raise Tampered(f"{self._address(manifest)} has {field} {published.get(field)!r}; expected {value!r}")
        digest = hashlib.sha256(body).hexdigest()
        if digest != wanted.sha256:
            raise Tampered(
                f"{self._address(folder)}best_skill.md has SHA-256 {digest}, published was {wanted.sha256}: refused"
            )
        try:
            return body.decode()
        except UnicodeDecodeError as error:
            raise Tampered(f"{self._address(folder)}best_skill.md is not UTF-8: {error}") from error

    def _object(self, key: str, kind: str) -> bytes:
        try:
            found = self._read(key, kind, "")
        except NotPublished as error:
            raise Tampered(f"{self._address(key)} is missing, yet the alias names its version") from error
        return b"" if found is None else found[0]

    def _read(self, key: str, kind: str, etag: str) -> tuple[bytes, str] | None:
        """Return body and ETag; None if the ETag hasn't changed."""
        from botocore.exceptions import BotoCoreError, ClientError

        condition: Any = {"IfNoneMatch": etag} if etag else {}
        try:
            answer = self._connected().get_object(Bucket=self._bucket, Key=key, **condition)
            with answer["Body"] as stream:
                body = stream.read(_MAX_BYTES[kind] + 1)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code == "304":
                return None
            if code in {"NoSuchKey", "404"}:
                raise NotPublished(f"nothing is published as {self._address(key)}") from error
            raise Unavailable(f"{self._address(key)}: {error}") from error
        except (BotoCoreError, OSError) as error:
            raise Unavailable(f"{self._address(key)}: {error}") from error
        if len(body) > _MAX_BYTES[kind]:
            raise Tampered(f"{self._address(key)} is larger than {_MAX_BYTES[kind]} bytes: refused")
        return body, answer.get("ETag", "")

    def _connected(self) -> "S3Client":
        if self._s3 is None:
            import boto3
            from botocore.config import Config

            config = Config(
                connect_timeout=self.timeout / 2, read_timeout=self.timeout / 2, retries={"total_max_attempts": 2}
            )
            self._s3 = boto3.session.Session().client("s3", endpoint_url=self._endpoint, config=config)
        return self._s3

    def _address(self, key: str) -> str:
        return f"s3://{self._bucket}/{key}"


class _Cache:
    """The last good skill in one file, which is replaced atomically, by one process at a time."""

    def __init__(self, folder: Path, identity: str) -> None:
        self.path = folder / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"

    def load(self) -> Skill | None:
        """Return the cached skill if it is intact; the file's modification time is its last confirmation."""
        try:
            skill = Skill(**json.loads(self.path.read_bytes()))
            confirmed = self.path.stat().st_mtime
            named = _VERSION.fullmatch(skill.version)
            whole = named is not None and hashlib.sha256(skill.text.encode()).hexdigest() == skill.sha256
            if whole and isinstance(skill.sequence, int) and isinstance(skill.etag, str):
                return replace(skill, confirmed=confirmed, problem="")
            log.warning("ignoring the cache %s, which is corrupt", self.path)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, AttributeError) as error:
            log.warning("ignoring the cache %s, which cannot be read: %s", self.path, error)
        return None

    def save(self, skill: Skill) -> Skill:
        """Cache the skill; return it with a problem if that fails."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(self.path.with_suffix(".lock")):
                cached = self.load()
                if cached is None or (cached.etag, cached.sha256) != (skill.etag, skill.sha256):
                    fresh = self.path.with_suffix(".tmp")
                    _write(fresh, json.dumps(asdict(skill)).encode())
                    fresh.replace(self.path)
                os.utime(self.path, (skill.confirmed, skill.confirmed))
        except OSError as error:
            return replace(skill, problem=f"served from memory, the cache cannot be written: {error}")
        return skill


def install(skill: Skill, out: Path, files: Mapping[str, str]) -> None:
    """Atomically make `out` a link to a folder with these files (contents by name).

    The folders are next to it, in `.<name>.versions`: this one, and the previous one for current readers.

    Raises:
        OutputError: writing failed, or `out` is something else, which stays unchanged.
    """
    store = out.parent / f".{out.name}.versions"
    try:
        store.mkdir(parents=True, exist_ok=True)
        with _locked(store / ".lock"):
            current = out.resolve()
            is_own = out.is_symlink() and current.parent == store.resolve()
            if not is_own and (out.is_symlink() or out.exists()):
                raise OutputError(f"{out} already exists and this client didn't create it. Choose a new path.")
            if not _holds(out, files):
                folder = Path(tempfile.mkdtemp(prefix=f"{skill.version}-", dir=store))
                for name, text in files.items():
                    _write(folder / name, text.encode())
                # Readers may be other users' processes.
                folder.chmod(0o755)
                link = store / ".link"
                link.unlink(missing_ok=True)
                link.symlink_to(Path(store.name) / folder.name)
                link.replace(out)
                for old in store.iterdir():
                    if old.is_dir() and old.name not in {current.name, folder.name}:
                        shutil.rmtree(old)
    except OSError as error:
        raise OutputError(f"cannot write {out}: {error}") from error


def skill_md(text: str, version: str, name: str, description: str | None) -> str:
    """Return a skill as a SKILL.md in the Agent Skills format, https://agentskills.io/specification.

    The consumer creates its own, because agents also read the front matter, which no checksum covers in the bucket.

    Args:
        text: the skill.
        version: the published version, for `metadata`.
        name: the folder's name: at most 64 lowercase letters, digits and single hyphens.
        description: when an agent should use the skill. Default: the skill's title and first sentence.
    """
    matter = f"name: {_yaml(name)}\ndescription: {_yaml(description or _described(text, name))}\n"
    return f"---\n{matter}metadata:\n  version: {_yaml(version)}\n---\n\n{text}"


def _yaml(text: str) -> str:
    """Return the text as a JSON string, with escapes for characters that YAML rejects or that end front matter."""
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))


def _described(text: str, name: str) -> str:
    plain = _MARKS.sub(r"\1", _HIDDEN.sub("\n", "\n".join(text.removeprefix("\ufeff")[:20_000].splitlines())))
    title = _HEADING.search(plain)
    first = next((part for part in _BREAK.split(_HEADING.sub("\n\n", plain)) if re.search(r"\w", part)), "")
    sentence = re.split(r"(?<=[.!?])\s+(?![a-z])|(?<=[。！？])", first.strip(), maxsplit=1)[0]
    parts = (" ".join(part.split()) for part in (title[1] if title else "", sentence))
    described = " ".join(part if part[-1] in ".!?:。！？" else f"{part}." for part in parts if part)
    if len(described) > _MAX_DESCRIPTION:
        return f"{described[: _MAX_DESCRIPTION - 1]}…"
    return described or f"Instructions of {name}."


def claude_code_text(text: str) -> str:
    """Return a skill's text in a form in which Claude Code runs and replaces nothing.

    The CLI runs commands in "```!" blocks and after "!" before a backtick. It attaches files of references such as
    `@~/.ssh/id_rsa`. It replaces `$1`, `$ARGUMENTS` and its own variables, and drops backslashes before such a dollar.
    The harness `claude_code` measures skills in this form. Source: CLI 2.1.197, whose patterns are in
    tests/rollout/harnesses/test_claude_code.py.
    """
    text = re.sub(r"(?<!\\)\\*\$(?=\d|ARGUMENTS)", r"\\$", text)
    text = re.sub(r"\$(?=\{(?:CLAUDE_|user_config\b))", r"$\\", text)
    # JavaScript's whitespace, and the punctuation after which the CLI also looks for a reference.
    text = re.sub(r"(?<![^\s\ufeff。、？！])@(?=[^ \t\n])", r"\\@", text)
    return text.replace("`!", "` !").replace("!`", "! `")


def main(arguments: list[str] | None = None) -> int:
    """Run the program and return its exit code."""
    options = _parser().parse_args(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        # In another thread, since this one may hold the event's lock.
        signal.signal(number, lambda *_: threading.Thread(target=stop.set).start())
    try:
        client = SkillClient(
            options.bucket,
            options.benchmark,
            options.target,
            alias=options.alias,
            prefix=options.prefix,
            endpoint_url=options.endpoint_url,
            cache=options.cache,
            timeout=options.timeout,
        )
        for skill in client.watch(options.watch, stop) if options.watch else [client.get()]:
            install(skill, options.out, _files(skill, options))
            if skill.problem:
                sys.stderr.write(f"last good skill, confirmed {skill.age:.0f} s ago: {skill.problem}\n")
            sys.stdout.write(f"{options.out}: {skill.version} sha256 {skill.sha256}\n")
            sys.stdout.flush()
    except SkillError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except ValueError as error:
        sys.stderr.write(f"invalid argument: {error}\n")
        return 2
    return 0


def _files(skill: Skill, options: argparse.Namespace) -> dict[str, str]:
    # Agents require the folder's name.
    described = options.description or _described(skill.text, options.out.name)
    text = claude_code_text(skill.text) if options.form == "claude-code-skill" else skill.text
    document = {"SKILL.md": skill_md(text, skill.version, options.out.name, described)}
    if options.form != "files":
        return document
    facts = {"benchmark": options.benchmark, "target": options.target, "alias": options.alias}
    facts |= {"version": skill.version, "sha256": skill.sha256}
    return document | {"best_skill.md": skill.text, "skill.json": json.dumps(facts, indent=2) + "\n"}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Follow a published skill.")
    fetch = parser.add_subparsers(required=True).add_parser(
        "fetch",
        help="write the skill to a folder",
        epilog="Exit codes: 0 written, possibly from the cache (reported on stderr); 2 invalid arguments; 5 the folder "
        "can't be written. Without a last good skill: 3 bucket unavailable, 4 tampered with, 6 not published.",
    )
    fetch.add_argument("--bucket", required=True)
    fetch.add_argument("--benchmark", required=True)
    fetch.add_argument("--target", required=True, help="the published model, such as openai-chat:gpt-5-mini")
    fetch.add_argument(
        "--out", required=True, type=_folder, help="path of the link to create, which gives the skill its name"
    )
    fetch.add_argument("--as", dest="form", choices=FORMS, default="files")
    fetch.add_argument("--description", type=_description, help="when an agent should use the skill, for SKILL.md")
    fetch.add_argument("--alias", default="champion")
    fetch.add_argument("--prefix", default="")
    fetch.add_argument("--endpoint-url")
    fetch.add_argument("--cache", type=Path, help="folder of the last good skill")
    fetch.add_argument("--timeout", type=_seconds, default=10.0, help="limit of a check of the bucket in seconds")
    fetch.add_argument(
        "--watch", type=_seconds, default=0.0, metavar="SECONDS", help="keep running, and check at this interval"
    )
    return parser


def _folder(text: str) -> Path:
    path = Path(text).absolute()
    if _SKILL_NAME.fullmatch(path.name) is None:
        raise argparse.ArgumentTypeError(
            f"{path.name!r} can't be a skill's name. End the path in at most 64 lowercase letters, digits and single "
            "hyphens."
        )
    return path


def _description(text: str) -> str:
    if not text.strip() or len(text) > _MAX_DESCRIPTION or re.search("[<>\0\ud800-\udfff]", text):
        raise argparse.ArgumentTypeError(
            f"it has {len(text):,} characters. Write 1 to 1,024 characters in UTF-8, without angle brackets."
        )
    return text


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e6:
        raise ValueError(text)
    return value


def _fields(body: bytes, address: str) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Tampered(f"{address} is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise Tampered(f"{address} isn't a JSON object")
    contract = fields.get("contract", CONTRACT)
    if not isinstance(contract, int) or contract > CONTRACT:
        raise Tampered(
            f"{address} follows contract {contract!r}, but this consumer knows only {CONTRACT}. Get a newer one"
        )
    return fields


def _holds(folder: Path, files: Mapping[str, str]) -> bool:
    with suppress(OSError):
        return {path.name: path.read_bytes() for path in folder.iterdir()} == {
            name: text.encode() for name, text in files.items()
        }
    return False


def _write(path: Path, body: bytes) -> None:
    with path.open("wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _quoted(name: str) -> str:
    encoded = quote(name, safe="")
    return encoded.replace(".", "%2E") if encoded in {".", ".."} else encoded


if __name__ == "__main__":
    sys.exit(main())
