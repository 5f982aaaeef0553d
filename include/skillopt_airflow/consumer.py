"""Follow a published skill from a deployment. One file to copy: Python 3.11+, boto3 and nothing else; Linux or macOS.

As a library, `SkillClient(bucket, benchmark, target).get()` or `.watch(seconds, stop)`; as a program
`python consumer.py fetch --help`. What it relies on is written down in docs/consumption.md. Credentials and region come
from boto3's own chain. What the bucket holds is data: names are checked before they become keys or paths.
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
"""Front matter, comments and blocks of code."""
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.*?\w.*)$", re.MULTILINE)
_BREAK = re.compile(r"\n\s*\n|\n?^\s*(?:[-*+]|\d+[.)])\s+", re.MULTILINE)
_MARKS = re.compile(r"\*(?!\s)|(?<=\S)\*|[`<>\x00-\x08\x0e-\x1f\x7f-\x9f]|!?\[([^\]]*)\]\([^)]*\)")
"""Markdown's marks, what a description can't have, and links."""
_MAX_BYTES = {"alias": 1 << 16, "skill": 1 << 20, "manifest": 1 << 26}

log = logging.getLogger("skill_consumer")


class SkillError(Exception):
    """There is no newer skill to serve; `exit_code` is the program's."""

    exit_code: ClassVar[int] = 1


class Unavailable(SkillError):
    """The bucket did not answer in time, or refused."""

    exit_code = 3


class Tampered(SkillError):
    """The bucket's content is not what was published."""

    exit_code = 4


class OutputError(SkillError):
    """The folder cannot be written."""

    exit_code = 5


class NotPublished(SkillError):
    """The alias does not exist."""

    exit_code = 6


@dataclass(frozen=True)
class Skill:
    """One verified version, and when the alias was last known to name it."""

    text: str
    """best_skill.md, byte for byte (UTF-8)."""
    version: str
    sha256: str
    sequence: int
    """Number of the alias's move; a later move has a higher one."""
    moved: str
    """Time at which the alias was moved here, ISO 8601, UTC."""
    etag: str
    """ETag of the alias."""
    confirmed: float = 0.0
    """Time at which the bucket last said that the alias names this version, in seconds since 1970."""
    problem: str = ""
    """Reason why it could not be confirmed, or not be cached, just now; empty if all is well."""

    @property
    def age(self) -> float:
        return max(0.0, time.time() - self.confirmed)


class SkillClient:
    """A client that resolves an alias to a verified skill. Threads can share it, and processes can share its cache."""

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
        """Read nothing yet.

        Args:
            bucket: of the published skills (`storage.artifact_bucket`).
            benchmark: as published.
            target: the model as published, such as `openai-chat:gpt-5-mini`.
            alias: which alias to follow.
            prefix: before all keys (`storage.prefix`).
            endpoint_url: of an S3-compatible server; None: boto3's own.
            cache: folder of the last good skill; None: `$XDG_CACHE_HOME/skillopt` or `~/.cache/skillopt`.
            timeout: most seconds that one look at the bucket takes.

        Raises:
            ValueError: the alias cannot be one.
        """
        if _NAME.fullmatch(alias) is None:
            raise ValueError(f"{alias!r} is no name of an alias")
        root = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self.benchmark, self.target, self.timeout = benchmark, target, timeout
        self._bucket, self._alias = bucket, alias
        self._folder = f"{root}skills/{_quoted(benchmark)}/{_quoted(target)}/"
        self._endpoint = endpoint_url
        self._cache = _Cache(cache or _cache_home(), f"{endpoint_url or _endpoint()} {bucket} {self._folder} {alias}")
        self._turn = threading.Lock()
        self._looked = 0.0
        """When the last look ended, by the monotonic clock."""
        self._looking = threading.Thread()
        self._s3: S3Client | None = None
        self._last: Skill | None = None
        # The import takes a second, which no look's timeout should pay for.
        import boto3  # noqa: F401

    def get(self) -> Skill:
        """Return the skill that the alias names now, or else the last good one, with `problem` saying why.

        Of threads that ask at the same time one looks, and the others return what it found.

        Raises:
            SkillError: there is no last good one.
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
        """Yield the skill now, then each time its version changes or a problem comes or goes, until `stop` is set.

        An alias that did not move costs one conditional GET (304) every `interval` seconds.

        Raises:
            SkillError: there is nothing to serve at the start.
        """
        seen: tuple[str, bool] | None = None
        while not stop.is_set():
            skill = self.get()
            if (skill.version, bool(skill.problem)) != seen:
                seen = (skill.version, bool(skill.problem))
                yield skill
            stop.wait(interval)

    def _within_timeout(self, last: Skill | None) -> Skill:
        """Return or raise what a look does, but no later: a server that drips bytes runs into no other timeout."""
        if self._looking.is_alive():
            raise Unavailable("the bucket did not answer the look before yet")
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
        if isinstance(outcome[0], SkillError | ValueError):
            raise outcome[0]
        if isinstance(outcome[0], Exception):
            # Such as an error of TLS within an answer, which the client does not translate.
            raise Unavailable(f"{type(outcome[0]).__name__}: {outcome[0]}") from outcome[0]
        return outcome[0]

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
            raise Tampered(f"{address} names version {version!r} with SHA-256 {digest!r}, which do not fit together")
        if not isinstance(sequence, int) or sequence < 0:
            raise Tampered(f"{address} has sequence {sequence!r}")
        return Skill("", version, digest, sequence, str(alias.get("moved", "")), etag, time.time())

    def _text(self, wanted: Skill) -> str:
        folder = f"{self._folder}versions/{wanted.version}/"
        body, manifest = self._object(f"{folder}best_skill.md", "skill"), f"{folder}manifest.json"
        said = _fields(self._object(manifest, "manifest"), self._address(manifest))
        expected = {"version": wanted.version, "sha256": wanted.sha256}
        expected |= {"benchmark": self.benchmark, "target": self.target}
        for field, value in expected.items():
            if said.get(field) != value:
                raise Tampered(f"{self._address(manifest)} says {field} {said.get(field)!r} where {value!r} is due")
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
        """Return body and tag; None if the tag is still this one."""
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
    """The last good skill in one file, which is replaced as a whole, by one process at a time."""

    def __init__(self, folder: Path, identity: str) -> None:
        self.path = folder / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"

    def load(self) -> Skill | None:
        """Return its skill if it is intact; the file's time of change is when the bucket last confirmed it."""
        try:
            skill = Skill(**json.loads(self.path.read_bytes()))
            confirmed = self.path.stat().st_mtime
            named = _VERSION.fullmatch(skill.version)
            whole = named is not None and hashlib.sha256(skill.text.encode()).hexdigest() == skill.sha256
            if whole and isinstance(skill.sequence, int) and isinstance(skill.etag, str):
                return replace(skill, confirmed=confirmed, problem="")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, AttributeError) as error:
            log.warning("the cache %s cannot be read, and is not used: %s", self.path, error)
            return None
        log.warning("the cache %s is corrupt, and is not used", self.path)
        return None

    def save(self, skill: Skill) -> Skill:
        """Keep it; return it with a problem if it can't be kept."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(self.path.with_suffix(".lock")):
                kept = self.load()
                if kept is None or (kept.etag, kept.sha256) != (skill.etag, skill.sha256):
                    fresh = self.path.with_suffix(".tmp")
                    _write(fresh, json.dumps(asdict(skill)).encode())
                    fresh.replace(self.path)
                os.utime(self.path, (skill.confirmed, skill.confirmed))
        except OSError as error:
            return replace(skill, problem=f"served from memory, the cache cannot be written: {error}")
        return skill


def install(skill: Skill, out: Path, files: Mapping[str, str]) -> None:
    """Make `out` a link to a folder with these files, by their names; readers see all of the old or all of the new.

    The folders are beside it, in `.<name>.versions`: this one, and the one before for who still reads it.

    Raises:
        OutputError: it cannot be written, or something else is there; what was there stays.
    """
    store = out.parent / f".{out.name}.versions"
    try:
        store.mkdir(parents=True, exist_ok=True)
        with _locked(store / ".lock"):
            present = out.resolve()
            is_own = out.is_symlink() and present.parent == store.resolve()
            if not is_own and (out.is_symlink() or out.exists()):
                raise OutputError(f"{out} is somebody else's: name a folder that does not exist yet")
            if not _holds(out, files):
                folder = Path(tempfile.mkdtemp(prefix=f"{skill.version}-", dir=store))
                for name, text in files.items():
                    _write(folder / name, text.encode())
                # Another user's process may be the one that reads.
                folder.chmod(0o755)
                link = store / ".link"
                link.unlink(missing_ok=True)
                link.symlink_to(Path(store.name) / folder.name)
                link.replace(out)
                for old in store.iterdir():
                    if old.is_dir() and old.name not in {present.name, folder.name}:
                        shutil.rmtree(old)
    except OSError as error:
        raise OutputError(f"cannot write {out}: {error}") from error


def skill_md(text: str, version: str, name: str, description: str | None) -> str:
    """Return a skill as a SKILL.md in the Agent Skills format, https://agentskills.io/specification.

    The consumer makes its own, because no checksum covers the front matter of the published one, which agents read too.

    Args:
        text: the skill.
        version: kept under `metadata`.
        name: lower-case letters, digits and single hyphens, at most 64; the folder's name.
        description: when an agent should use the skill; None: the skill's own title and first sentence.
    """
    matter = f"name: {_yaml(name)}\ndescription: {_yaml(description or _described(text, name))}\n"
    return f"---\n{matter}metadata:\n  version: {_yaml(version)}\n---\n\n{text}"


def _yaml(text: str) -> str:
    """Return the text as a YAML string: a JSON string without what YAML refuses, or readers take for its end."""
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))


def _described(text: str, name: str) -> str:
    plain = _MARKS.sub(r"\1", _HIDDEN.sub("\n", "\n".join(text.removeprefix("\ufeff")[:20_000].splitlines())))
    title = _HEADING.search(plain)
    first = next((part for part in _BREAK.split(_HEADING.sub("\n\n", plain)) if re.search(r"\w", part)), "")
    sentence = re.split(r"(?<=[.!?])\s+(?![a-z])|(?<=[。！？])", first.strip(), maxsplit=1)[0]
    parts = (" ".join(part.split()) for part in (title[1] if title else "", sentence))
    said = " ".join(part if part[-1] in ".!?:。！？" else f"{part}." for part in parts if part)
    return f"{said[: _MAX_DESCRIPTION - 1]}…" if len(said) > _MAX_DESCRIPTION else said or f"Instructions of {name}."


def claude_code_text(text: str) -> str:
    """Return a skill's text in a form that Claude Code runs nothing of and replaces nothing in.

    The CLI runs commands in "```!" blocks and after "!" before a backtick, attaches the files of references such as
    `@~/.ssh/id_rsa`, and replaces `$1`, `$ARGUMENTS` and its own variables. Backslashes before such a dollar get lost.
    The harness `claude_code` measures skills in this form. Source: the CLI 2.1.197, whose patterns are in
    tests/rollout/harnesses/test_claude_code.py.
    """
    text = re.sub(r"(?<!\\)\\*\$(?=\d|ARGUMENTS)", r"\\$", text)
    text = re.sub(r"\$(?=\{(?:CLAUDE_|user_config\b))", r"$\\", text)
    # JavaScript's whitespace, and the full stops after which the CLI looks for a reference, too.
    text = re.sub(r"(?<![^\s\ufeff。、？！])@(?=[^ \t\n])", r"\\@", text)
    return text.replace("`!", "` !").replace("!`", "! `")


def main(arguments: list[str] | None = None) -> int:
    """Run the program; returns its exit code."""
    given = _parser().parse_args(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        # In a thread, since the signal may come while this one holds the event's lock.
        signal.signal(number, lambda *_: threading.Thread(target=stop.set).start())
    try:
        client = SkillClient(
            given.bucket,
            given.benchmark,
            given.target,
            alias=given.alias,
            prefix=given.prefix,
            endpoint_url=given.endpoint_url,
            cache=given.cache,
            timeout=given.timeout,
        )
        for skill in client.watch(given.watch, stop) if given.watch else [client.get()]:
            install(skill, given.out, _files(skill, given))
            if skill.problem:
                sys.stderr.write(f"last good skill, confirmed {skill.age:.0f} s ago: {skill.problem}\n")
            sys.stdout.write(f"{given.out}: {skill.version} sha256 {skill.sha256}\n")
            sys.stdout.flush()
    except SkillError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except ValueError as error:
        sys.stderr.write(f"wrong argument: {error}\n")
        return 2
    return 0


def _files(skill: Skill, given: argparse.Namespace) -> dict[str, str]:
    # The name has to be the folder's: agents ask for that.
    described = given.description or _described(skill.text, given.out.name)
    text = claude_code_text(skill.text) if given.form == "claude-code-skill" else skill.text
    document = {"SKILL.md": skill_md(text, skill.version, given.out.name, described)}
    if given.form != "files":
        return document
    facts = {"benchmark": given.benchmark, "target": given.target, "alias": given.alias}
    facts |= {"version": skill.version, "sha256": skill.sha256}
    return document | {"best_skill.md": skill.text, "skill.json": json.dumps(facts, indent=2) + "\n"}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Follow a published skill.")
    fetch = parser.add_subparsers(required=True).add_parser(
        "fetch",
        help="put the skill into a folder",
        epilog="Exit codes: 0 written, from the cache if need be (said on stderr); 2 wrong arguments; and with no last "
        "good skill: 3 the bucket is away, 4 tampered with, 6 not published. 5: the folder cannot be written.",
    )
    fetch.add_argument("--bucket", required=True)
    fetch.add_argument("--benchmark", required=True)
    fetch.add_argument("--target", required=True, help="the model as published, such as openai-chat:gpt-5-mini")
    fetch.add_argument("--out", required=True, type=_folder, help="becomes a link; its name is the skill's")
    fetch.add_argument("--as", dest="form", choices=FORMS, default="files")
    fetch.add_argument("--description", type=_description, help="in SKILL.md: when an agent should use it")
    fetch.add_argument("--alias", default="champion")
    fetch.add_argument("--prefix", default="")
    fetch.add_argument("--endpoint-url")
    fetch.add_argument("--cache", type=Path, help="folder of the last good skill")
    fetch.add_argument("--timeout", type=_seconds, default=10.0, help="most seconds for one look at the bucket")
    fetch.add_argument(
        "--watch", type=_seconds, default=0.0, metavar="SECONDS", help="keep running, and look this often"
    )
    return parser


def _folder(text: str) -> Path:
    path = Path(text).absolute()
    if _SKILL_NAME.fullmatch(path.name) is None:
        raise argparse.ArgumentTypeError(
            f"{path.name!r} can't be a skill's name. End the path in at most 64 lower-case letters, digits and single "
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
        raise Tampered(f"{address} is no JSON object")
    contract = fields.get("contract", CONTRACT)
    if not isinstance(contract, int) or contract > CONTRACT:
        raise Tampered(f"{address} follows contract {contract!r}, this consumer {CONTRACT}: get a newer one")
    return fields


def _holds(folder: Path, files: Mapping[str, str]) -> bool:
    with suppress(OSError):
        return {path.name: path.read_bytes() for path in folder.iterdir()} == {
            name: text.encode() for name, text in files.items()
        }
    return False


def _write(path: Path, body: bytes) -> None:
    """Write, and see it on the disk."""
    with path.open("wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let one process and thread in at a time; a lock is free again when its holder dies."""
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _quoted(name: str) -> str:
    encoded = quote(name, safe="")
    return encoded.replace(".", "%2E") if encoded in {".", ".."} else encoded


def _endpoint() -> str:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


def _cache_home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "skillopt"


if __name__ == "__main__":
    sys.exit(main())
