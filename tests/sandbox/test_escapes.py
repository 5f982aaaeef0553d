"""What code that a model wrote may try inside a sandbox, and that it comes to nothing.

Each case runs as the second of three items of one task, in a real container made by the real operator; the other two
must go on. docs/sandbox.md has a row for each case, and a test here holds it to that.
"""

import io
import json
import os
import re
import resource
import signal
import socket
import threading
import time
import zipfile
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import docker
import pytest
from openpyxl import Workbook

from benchmarks.spreadsheetbench.adapter import BENCHMARK
from local import image
from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.core.values.types import MAX_FILES, Item, Status, Trajectory
from skillopt_airflow.sandbox.docker.container import FOLDER_LABEL
from skillopt_airflow.sandbox.docker.limits import MEGABYTE
from skillopt_airflow.sandbox.staging import temporary_folder
from skillopt_airflow.tasks.task_group import SCORING_RULES
from skillopt_airflow.training.rollouts.judging import Case, score_files
from tests.gateway.scripted_provider import Asked, Reply, ScriptedProvider, completion
from tests.sandbox.fake_workload import KEY, SECRET_ANSWER, FakeOperator, FakeWorkload, answer_all, leftovers
from tests.sandbox.task_process import task_process

pytestmark = pytest.mark.engine

PROJECT = Path(__file__).resolve().parents[2]
HOSTILE = "i-1"
ENTRYPOINT = [
    "python3",
    "-c",
    "import json; (item,) = map(json.loads, open('/in/items.jsonl')); exec(item['public']['code'])",
]
"""Instead of the rollout program: what the target wrote is all that runs."""
PREAMBLE = """
import ctypes, http.client, json, os, pathlib, signal, socket, stat, subprocess, sys, time

def row(answer="", **fields):
    with open("/out/trajectories.jsonl", "a") as out:
        out.write(json.dumps({"item_id": item["id"], "status": "ok", "answer": json.dumps(answer)} | fields) + "\\n")

def attempt(action):
    try:
        return f"allowed: {action()!r}"
    except (OSError, subprocess.SubprocessError) as error:
        return type(error).__name__ + ": " + str(error)

def files(*roots):
    for root in roots:
        for folder, _, names in os.walk(root):
            for name in names:
                yield os.path.join(folder, name)

class Gateway(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect("/gateway/model.sock")

def ask(path="/v1/chat/completions", method="POST", headers={}, body=None, model="stand-in-target"):
    body = json.dumps({"model": model, "messages": []}) if body is None else body
    gateway = Gateway("gateway", timeout=30)
    try:
        gateway.request(method, path, body, headers)
        answer = gateway.getresponse()
        return answer.status, answer.read().decode()
    except (OSError, http.client.HTTPException) as error:
        return 0, type(error).__name__
"""
HARMLESS = PREAMBLE + "row('fine')"

FIND = """
import base64
needles = {name: base64.b64decode(text) for name, text in item["public"]["needles"].items()}
found = {name: [] for name in needles}
roots = [f"/{name}" for name in os.listdir("/") if name not in ("proc", "sys", "dev")]
own = [f"/proc/{pid}/{name}" for pid in os.listdir("/proc") if pid.isdigit()
       for name in ("environ", "cmdline", "mountinfo", "status")]
for path in [*files(*roots), *own]:
    try:
        if path.startswith("/proc/") or stat.S_ISREG(os.stat(path).st_mode):
            content = open(path, "rb").read()
            for name, needle in needles.items():
                if needle in content:
                    found[name].append(path)
    except OSError:
        pass
"""


@pytest.fixture(scope="session")
def obedient_image(docker_host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The sandbox image, except that it runs an item's code."""
    folder = tmp_path_factory.mktemp("obedient")
    (folder / "Dockerfile").write_text(f"FROM {image.IMAGE}\nENTRYPOINT {json.dumps(ENTRYPOINT)}\n")
    client = docker.DockerClient(base_url=docker_host)
    tag = f"skillopt-test:escapes-{os.getpid()}"
    client.images.build(path=str(folder), tag=tag, network_mode="none", rm=True)
    yield tag
    client.images.remove(tag, force=True)
    client.close()


class Break:
    """One attempt to break out: three items, of which the second is hostile."""

    def __init__(self, fake: FakeWorkload, docker_host: str, client: docker.DockerClient) -> None:
        self.fake = fake
        self.client = client
        self.operator = FakeOperator(fake=fake, docker_url=docker_host)

    def run(self) -> "Break":
        """Run the task to its end; the other items went on, and nothing stays."""
        self.operator.execute({})
        rows = {row.item_id: row for row in self.fake.trajectories}
        assert sorted(rows) == ["i-0", HOSTILE, "i-2"]
        assert len(self.fake.trajectories) == 3
        for other in ("i-0", "i-2"):
            assert (rows[other].status, rows[other].answer) == (Status.OK, '"fine"')
        assert leftovers(self.client, self.fake) == []
        return self

    @property
    def row(self) -> Trajectory:
        return next(row for row in self.fake.trajectories if row.item_id == HOSTILE)

    @property
    def answer(self) -> Any:
        """What the hostile item said at its end."""
        assert self.row.answer, self.row.error
        return json.loads(self.row.answer)


@pytest.fixture
def attack(docker_host, client, workload, obedient_image) -> Callable[..., Break]:
    def make(code: str, provider: ScriptedProvider | None = None, public: Any = None, **limits: Any) -> Break:
        fake: FakeWorkload = workload(
            provider, count=3, concurrency=3, image=obedient_image, **{"memory": "128m"} | limits
        )
        codes = [HARMLESS, PREAMBLE + code, HARMLESS]
        fake.items = [
            Item(id=item.id, public={"code": codes[n]} | ((public or {}) if n == 1 else {}), reference=item.reference)
            for n, item in enumerate(fake.items)
        ]
        fake.one_item_each = True
        return Break(fake, docker_host, client)

    return make


def needles(**texts: str) -> dict[str, dict[str, str]]:
    """Texts to look for, hidden from the look itself."""
    return {"needles": {name: b64encode(text.encode()).decode() for name, text in texts.items()}}


def test_read_the_reference_answers(attack):
    public = needles(answer=SECRET_ANSWER, control="meant-to-be-seen") | {"note": "meant-to-be-seen"}
    broken = attack(FIND + "row(found)", public=public).run()
    assert broken.answer["control"] == ["/in/items.jsonl"]
    assert broken.answer["answer"] == []


def test_read_the_provider_key(attack):
    def echo(asked: Asked) -> Reply:
        return completion(json.dumps(asked.headers))

    code = FIND + "row([found, ask(headers={'authorization': 'Bearer mine', 'x-echo': '1'})])"
    with ScriptedProvider(echo) as provider:
        found, (status, text) = attack(code, provider, needles(key=KEY)).run().answer
    assert provider.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert found["key"] == []
    assert status == 200
    assert KEY not in text


def test_read_another_runs_files(attack):
    with temporary_folder() as other:
        (other / "secret").write_text("secret-of-another-run")
        broken = attack(
            FIND + f"row([found, attempt(lambda: os.listdir({str(other)!r})), os.listdir('/proc/1/task')])",
            public=needles(run="secret-of-another-run", neighbour="row('fine')"),
        ).run()
    found, listing, tasks = broken.answer
    assert found == {"run": [], "neighbour": []}
    assert listing.startswith("FileNotFoundError")
    assert tasks == ["1"]


REACH = """
libc = ctypes.CDLL(None, use_errno=True)

def call(function, *arguments):
    if function(*arguments) == 0:
        return "done"
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

def path(text):
    return text.encode()

row({
    "read": attempt(lambda: open(item["public"]["canary"]).read()),
    "root": attempt(lambda: open("/proc/1/root" + item["public"]["canary"]).read()),
    "write": attempt(lambda: open("/etc/passwd", "a")),
    "mount": attempt(lambda: call(libc.mount, path("proc"), path("/tmp"), path("proc"), 0, None)),
    "bind": attempt(lambda: call(libc.mount, path("/"), path("/tmp"), None, 4096, None)),
    "chroot": attempt(lambda: os.chroot("/tmp")),
    "namespace": attempt(lambda: call(libc.unshare, 0x10000000)),
    "ptrace_init": attempt(lambda: open("/proc/1/mem", "r+b").seek(0) or os.setuid(0)),
    "root_user": attempt(lambda: os.setuid(0)),
    "su": subprocess.run(["su", "-c", "id"], stdin=subprocess.DEVNULL, capture_output=True).returncode,
    "core_pattern": attempt(lambda: open("/proc/sys/kernel/core_pattern", "w")),
    "sysrq": attempt(lambda: open("/proc/sysrq-trigger", "w")),
    "modules": attempt(lambda: call(libc.init_module, None, 0, path(""))),
    "cgroup": [p for p in files("/sys/fs/cgroup") if os.access(p, os.W_OK)],
    "devices": sorted(p for p in files("/dev") if stat.S_ISBLK(os.lstat(p).st_mode)),
    "swap_root": attempt(lambda: open("/sys/kernel/uevent_helper", "w")),
})
"""


def test_reach_the_hosts_file_system(attack, tmp_path):
    canary = tmp_path / "canary"
    canary.write_text("untouched")
    reached = attack(REACH, public={"canary": str(canary)}).run().answer
    assert reached.pop("su") != 0
    assert reached.pop("cgroup") == reached.pop("devices") == []
    assert [name for name, outcome in reached.items() if outcome.startswith("allowed")] == []
    assert canary.read_text() == "untouched"


def test_ask_the_clouds_metadata_service(attack):
    """Nothing is sent to the service: without a route and an interface no packet can be."""
    code = """
lines = lambda path: open(path).read().splitlines() if os.path.exists(path) else []
row({
    "interfaces": os.listdir("/sys/class/net"),
    "routes": lines("/proc/net/route")[1:],
    "routes6": [line.split()[9] for line in lines("/proc/net/ipv6_route")],
    "arp": lines("/proc/net/arp")[1:],
})
"""
    seen = attack(code).run().answer
    assert seen["interfaces"] == ["lo"]
    assert seen["routes"] == seen["arp"] == []
    assert set(seen["routes6"]) <= {"lo"}


def test_reach_the_docker_socket(attack):
    with socket.socket(socket.AF_UNIX) as abstract:
        name = f"skillopt-test-{os.getpid()}"
        abstract.bind(f"\0{name}")
        abstract.listen()
        code = f"""
sockets = []
for path in files("/"):
    try:
        if not path.startswith("/proc/") and stat.S_ISSOCK(os.lstat(path).st_mode):
            sockets.append(path)
    except OSError:
        pass
connect = lambda path: attempt(lambda: socket.socket(socket.AF_UNIX).connect(path))
row([sockets, connect("/var/run/docker.sock"), connect("\\0{name}"), open("/proc/net/unix").read().count("\\n")])
"""
        sockets, docker_socket, abstract_socket, table = attack(code).run().answer
    assert sockets == ["/gateway/model.sock"]
    assert docker_socket.startswith("FileNotFoundError")
    assert abstract_socket.startswith("ConnectionRefusedError")
    assert table == 1


class Listener:
    """Takes TCP connections and UDP packets at one address of this machine, and counts them."""

    def __init__(self, address: str) -> None:
        self.count = 0
        self.tcp = socket.create_server((address, 0))
        self.port = self.tcp.getsockname()[1]
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind((address, self.port))
        self.address = [address, self.port]
        for one in (self.tcp, self.udp):
            one.setblocking(False)

    def take(self) -> int:
        """How many came since the last time."""
        taken = 0
        for receive in (lambda: self.tcp.accept()[0].close(), lambda: self.udp.recv(10)):
            try:
                while True:
                    receive()
                    taken += 1
            except BlockingIOError:
                continue
        return taken

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.tcp.close()
        self.udp.close()


@contextmanager
def bridge_address(client: docker.DockerClient) -> Iterator[str]:
    """This machine's address on a bridge of the engine."""
    network = client.networks.create(f"skillopt-test-{os.getpid()}", driver="bridge")
    try:
        network.reload()
        yield network.attrs["IPAM"]["Config"][0]["Gateway"]
    finally:
        network.remove()


def connect_all(addresses: list[list[Any]]) -> None:
    for address in map(tuple, addresses):
        socket.create_connection(address, timeout=5).close()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.sendto(b"x", address)


def test_open_a_network_address(attack, client):
    code = """
said = []
for address in item["public"]["addresses"]:
    said.append(attempt(lambda: socket.create_connection(tuple(address), timeout=5)))
    if address[0] != "127.0.0.1":
        said.append(attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", tuple(address))))
said.append(attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)))
said.append(attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)))
row(said)
"""
    with ExitStack() as stack:
        places = ("127.0.0.1", stack.enter_context(bridge_address(client)))
        listeners = [stack.enter_context(Listener(address)) for address in places]
        addresses = [listener.address for listener in listeners]
        connect_all(addresses)
        assert [listener.take() for listener in listeners] == [2, 2]

        said = attack(code, public={"addresses": addresses}).run().answer

        assert [listener.take() for listener in listeners] == [0, 0]
    assert not [words for words in said if words.startswith("allowed")]
    assert "Network is unreachable" in said[1]
    assert "Network is unreachable" in said[2]


def test_call_another_model_or_endpoint(attack):
    code = """
allowed = ask()
twice = json.dumps({"model": "stand-in-target"})[:-1] + ', "model": "expensive"}'
row([allowed[0], [
    ask(model="expensive"), ask(model=None), ask(body=twice), ask(body="[]"), ask(body=b"\\xff"),
    ask("/v1/models", "GET"), ask("/v1/files"), ask("/v1/embeddings"), ask("/v1/batches"), ask("/v1/responses"),
    ask("/v1/chat/completions/../files"), ask("/v1/chat%2fcompletions/x"), ask("//127.0.0.1/v1/chat/completions"),
    ask("http://127.0.0.1:9/v1/files"), ask("127.0.0.1:9", "CONNECT"), ask(method="DELETE"),
]])
"""
    with ScriptedProvider(answer_all) as provider:
        allowed, refused = attack(code, provider).run().answer
    assert allowed == 200
    assert {asked.path for asked in provider.requests} == {"/v1/chat/completions"}
    assert {asked.body["model"] for asked in provider.requests} == {"stand-in-target"}
    assert len(provider.requests) == 1
    assert {status for status, _ in refused} <= {400, 403}


def test_exhaust_the_memory(attack):
    broken = attack("held = []\nwhile True:\n    held.append(bytearray(1 << 24))", memory="64m").run()
    assert broken.row.status is Status.SANDBOX_ERROR
    assert "out of memory" in broken.row.error


def test_exhaust_the_processes(attack):
    code = """
born = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(600)
        born += 1
except OSError as error:
    row([born, str(error)])
os._exit(0)
"""
    born, why = attack(code).run().answer
    assert 100 <= born < 128
    assert "temporarily unavailable" in why


def test_exhaust_the_disk(attack):
    code = """
def fill(folder):
    for n in range(100_000):
        with open(f"{folder}/{n}", "wb") as out:
            out.write(bytes(1 << 20))
said = [attempt(lambda: fill(folder)) for folder in ("/tmp", "/dev/shm", "/", "/in", "/gateway", "/var/tmp")]
row(said)
said = attempt(lambda: fill("/out"))
time.sleep(600)
"""
    broken = attack(code, output_mb=8, memory="256m").run()
    assert broken.row.status is Status.OK
    full, shared, *closed = broken.answer
    assert "No space left" in full
    assert "No space left" in shared
    assert all("Read-only" in words for words in closed)


@pytest.mark.nightly
def test_exhaust_the_file_system_with_empty_files(attack):
    code = "for n in range(1_000_000):\n    open(f'/out/{n}', 'w').close()\n"
    broken = attack(code).run()
    assert broken.row.status is Status.SANDBOX_ERROR
    assert "sandbox.output_mb" in broken.row.error


def test_write_more_than_is_allowed(attack):
    code = """
for n in range(1000):
    with open(f"/out/{n}", "wb") as out:
        out.write(bytes(1 << 20))
    time.sleep(0.02)
time.sleep(600)
"""
    broken = attack(code, output_mb=2).run()
    assert broken.row.status is Status.SANDBOX_ERROR
    assert "more than 2 MB (sandbox.output_mb)" in broken.row.error


def test_write_a_row_of_a_gigabyte(attack):
    code = """
def write():
    with open("/out/trajectories.jsonl", "wb") as out:
        out.write(b'{"item_id": "i-1", "status": "ok", "answer": "')
        for _ in range(1024):
            out.write(b"x" * (1 << 20))
        out.write(b'"}\\n')
said = attempt(write)
print(said, flush=True)
sys.exit(said.startswith("allowed"))
"""
    broken = attack(code, output_mb=16).run()
    assert broken.row.status is Status.SANDBOX_ERROR


@pytest.mark.parametrize("bomb", ["zeros", "objects", "keys"])
def test_write_a_row_of_a_million_values(attack, bomb):
    code = r"""
bombs = {
    "zeros": '"files": [' + ",".join("0" * 1_000_000) + "]",
    "objects": '"messages": [' + ",".join(["{}"] * 500_000) + "]",
    "keys": ",".join(f'"k{n}": 0' for n in range(200_000)),
}
with open("/out/trajectories.jsonl", "w") as out:
    out.write('{"item_id": "i-1", "status": "ok", "answer": "x", ' + bombs[item["public"]["bomb"]] + "}\n")
"""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    broken = attack(code, public={"bomb": bomb}, output_mb=16, memory="512m").run()
    assert broken.row.status is Status.SANDBOX_ERROR
    # In KiB: to explain each value took gigabytes once.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000


def test_answer_so_that_a_rule_of_scoring_never_ends(attack):
    broken = attack("row('1,' * 32_000)").run()
    assert broken.row.status is Status.OK
    answer = broken.answer
    assert len(answer) == 64_000
    references = {"number": 1.5, "list": ["1", "2"], "regex": r"(\d+,)+x", "figures": "[1, 2]", "choice": "A"}
    for name, reference in references.items():
        began = time.thread_time()
        assert SCORING_RULES[name].model_validate({"by": name}).score(answer, reference, {}).hard == 0.0
        assert time.thread_time() - began < 1.0, name


def test_flood_the_log(attack, caplog):
    caplog.set_level("INFO")
    code = """
print("\\x1b[2J::endgroup::\\rforged", flush=True)
for n in range(200_000):
    print("chatter " * 20, n)
row("said enough")
"""
    broken = attack(code).run()
    text = "\n".join(record.getMessage() for record in caplog.records)
    assert broken.answer == "said enough"
    assert text.count("[further output of the container is left out]") == 1
    assert 64_000 < len(text) < 200_000
    assert "\x1b" not in text
    assert "\u241b[2J::endgroup::\u240dforged" in text


def test_never_end(attack):
    code = """
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
while True:
    pass
"""
    broken = attack(code, timeout=4).run()
    assert broken.row.status is Status.SANDBOX_ERROR
    assert "no item ended for 4 s (sandbox.timeout)" in broken.row.error


def test_write_links(attack, tmp_path, caplog):
    canary = tmp_path / "canary.xlsx"
    canary.write_text("content-of-the-host")
    code = """
canary = item["public"]["canary"]
os.symlink(canary, "/out/files/0/link.xlsx")
hard = attempt(lambda: os.link("/in/settings.json", "/out/files/0/hard.json"))
os.symlink("/etc/passwd", "/out/files/0/passwd")
row(hard, files=["link.xlsx", "hard.json", "passwd"])
"""
    broken = attack(code, public={"canary": str(canary)}).run()
    assert "Invalid cross-device link" in broken.answer
    assert broken.fake.left == {}
    assert caplog.text.count("Refused a file") == 3


def test_replace_folders_by_links(attack, tmp_path, caplog):
    (tmp_path / "files" / "0").mkdir(parents=True)
    (tmp_path / "files" / "0" / "secret.txt").write_text("content-of-the-host")
    code = """
os.rename("/out/files", "/out/aside")
os.symlink(item["public"]["folder"] + "/files", "/out/files")
row("linked", files=["secret.txt"])
"""
    broken = attack(code, public={"folder": str(tmp_path)}).run()
    assert broken.answer == "linked"
    assert broken.fake.left == {}
    assert (tmp_path / "files" / "0" / "secret.txt").read_text() == "content-of-the-host"


def test_put_a_link_where_rows_belong(attack, tmp_path, caplog):
    host_rows = tmp_path / "rows.jsonl"
    host_rows.write_text('{"item_id": "i-1", "status": "ok", "answer": "\\"of the host\\""}\n')
    code = "os.symlink(item['public']['rows'], '/out/trajectories.jsonl')"
    broken = attack(code, public={"rows": str(host_rows)}).run()
    assert broken.row.status is Status.SANDBOX_ERROR
    assert "not a plain file" in caplog.text


def test_write_device_files_pipes_and_sockets(attack, caplog):
    code = """
device = attempt(lambda: os.mknod("/out/files/0/sda", stat.S_IFBLK | 0o666, os.makedev(8, 0)))
zero = attempt(lambda: os.mknod("/out/files/0/zero", stat.S_IFCHR | 0o666, os.makedev(1, 5)))
os.mkfifo("/out/files/0/pipe")
socket.socket(socket.AF_UNIX).bind("/out/files/0/socket")
os.mkdir("/out/files/0/folder")
row([device, zero], files=["sda", "zero", "pipe", "socket", "folder"])
"""
    broken = attack(code).run()
    assert all("not permitted" in words for words in broken.answer)
    assert broken.fake.left == {}


def test_put_a_pipe_where_rows_belong(attack, caplog):
    broken = attack("os.mkfifo('/out/trajectories.jsonl')").run()
    assert broken.row.status is Status.SANDBOX_ERROR
    assert "not a plain file" in caplog.text


def test_leave_huge_and_sparse_and_many_files(attack):
    code = """
def sparse():
    with open("/out/files/0/sparse", "wb") as out:
        out.truncate(1 << 40)
said = attempt(sparse)
open("/out/files/0/large", "wb").write(bytes(900_000))
open("/out/files/0/larger", "wb").write(bytes(900_000))
for n in range(200):
    open(f"/out/files/0/f{n}", "w").close()
row(said, files=["large", "sparse", "larger", *(f"f{n}" for n in range(200))])
"""
    broken = attack(code, output_mb=1).run()
    left = broken.fake.left.get(HOSTILE, {})
    assert len(left) <= MAX_FILES
    assert sum(map(len, left.values())) <= MEGABYTE
    if broken.row.status is Status.OK:
        assert "File too large" in broken.answer


def test_leave_a_zip_bomb(attack):
    """Nothing on this side unpacks it; what a judge of files does with one is shown in tests/training."""
    code = """
import zipfile
with zipfile.ZipFile("/out/files/0/bomb.xlsx", "w", zipfile.ZIP_DEFLATED) as bomb:
    with bomb.open("xl/worksheets/sheet1.xml", "w", force_zip64=True) as member:
        for _ in range(256):
            member.write(bytes(1 << 22))
row(os.path.getsize("/out/files/0/bomb.xlsx"), files=["bomb.xlsx"])
"""
    broken = attack(code, output_mb=8).run()
    assert len(broken.fake.left[HOSTILE]["bomb.xlsx"]) == broken.answer < 2 * MEGABYTE


BOMB = """
import zipfile
laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
sheet = f'''<?xml version="1.0"?><!DOCTYPE x [<!ENTITY l0 "ha">{laughs}]>
<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData><row r="1">
<c r="A1" t="inlineStr"><is><t>&l11;</t></is></c></row></sheetData></worksheet>'''
with zipfile.ZipFile(INPUT_PATH) as old, zipfile.ZipFile(OUTPUT_PATH, "w") as new:
    for name in old.namelist():
        new.writestr(name, sheet if name == "xl/worksheets/sheet1.xml" else old.read(name))
"""
PROBE = """
import os, socket, subprocess
reached = []
for address in (("127.0.0.1", PORT), ("BRIDGE", PORT)):
    try:
        reached.append(str(socket.create_connection(address, timeout=5)))
    except OSError as error:
        reached.append("denied")
print("reached", reached)
print("interfaces", os.listdir("/sys/class/net"), "user", os.getuid())
print("environment", sorted(os.environ))
print("inputs", sorted(os.listdir(os.path.dirname(INPUT_PATH))), os.path.exists("/var/run/docker.sock"))
"""


def workbook(*column: Any) -> bytes:
    book, content = Workbook(), io.BytesIO()
    for number, value in enumerate(column, start=1):
        book.worksheets[0].cell(number, 1, value)
    book.save(content)
    book.close()
    return content.getvalue()


@pytest.fixture
def spreadsheet(workload) -> Callable[[ScriptedProvider], FakeWorkload]:
    """One item of the benchmark that runs code, with the real program in the real image."""

    def make(provider: ScriptedProvider) -> FakeWorkload:
        fake: FakeWorkload = workload(provider)
        record = {"id": "i-0", "instruction": "Double.", "instruction_type": "Cell-Level Manipulation"}
        fake.items = [BENCHMARK.item(record | {"answer_position": "A1:A2", "spreadsheet_path": "books/1"})]
        fake.settings = fake.settings.model_copy(update={"benchmark": "spreadsheetbench", "max_turns": 2})
        fake.public_files = {fake.items[0].files[0].name: workbook(1, 2)}
        fake.one_item_each = True
        return fake

    return make


def replies(*codes: str) -> Callable[[Asked], Reply]:
    return lambda asked: completion(f"```python\n{codes[min(asked.number, len(codes)) - 1]}\n```")


def test_break_out_by_the_real_harness(docker_host, client, spreadsheet):
    with bridge_address(client) as bridge, Listener(bridge) as listener:
        code = PROBE.replace("BRIDGE", bridge).replace("PORT", str(listener.port))
        save = "import shutil; shutil.copy(INPUT_PATH, OUTPUT_PATH)"
        with ScriptedProvider(replies(code, save)) as provider:
            fake = spreadsheet(provider)
            FakeOperator(fake=fake, docker_url=docker_host).execute({})
        assert listener.take() == 0
    told = provider.requests[1].body["messages"][-1]["content"]
    assert "reached ['denied', 'denied']" in told
    assert f"interfaces ['lo'] user {os.getuid() or 10001}" in told
    assert f"inputs ['{fake.items[0].files[0].name}'] False" in told
    assert "KEY" not in told
    assert KEY not in told
    assert list(fake.left["i-0"].values()) == [fake.public_files[fake.items[0].files[0].name]]


SEARCH = """
import os
wanted, found = "SECRET"[::-1].encode(), []
for folder, folders, names in os.walk("/"):
    folders[:] = [name for name in folders if os.path.join(folder, name) not in ("/sys", "/proc", "/dev")]
    for name in names:
        path = os.path.join(folder, name)
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            while part := os.read(handle, 2**20):
                if wanted in part:
                    found.append(path)
        except OSError:
            pass
        os.close(handle)
for process in (name for name in os.listdir("/proc") if name.isdigit()):
    for name in ("mem", "environ", "fd"):
        try:
            open(f"/proc/{process}/{name}", "rb").close() if name != "fd" else os.listdir(f"/proc/{process}/fd")
            found += [f"{process}/{name}"] if process == "1" else []
        except OSError:
            pass
print("found", found, "sealed", os.path.exists("/out/sealed"))
"""


def test_look_for_what_a_world_is_made_of(docker_host, spreadsheet):
    """By code that reads whatever it can, as no target of such a benchmark is able to."""
    secret = "goal-of-the-world-7731"
    with ScriptedProvider(replies(SEARCH.replace("SECRET", secret[::-1]), "print(1)")) as provider:
        fake = spreadsheet(provider)
        fake.public_files = {"game.tw-pddl": f"its {secret}".encode()}
        fake.seals_files = True
        FakeOperator(fake=fake, docker_url=docker_host).execute({})
    told = provider.requests[1].body["messages"][-1]["content"]
    assert "found [] sealed False" in told


def test_leave_a_workbook_with_an_xml_bomb(docker_host, spreadsheet):
    with ScriptedProvider(replies(BOMB)) as provider:
        fake = spreadsheet(provider)
        FakeOperator(fake=fake, docker_url=docker_host).execute({})
    (row,) = fake.trajectories
    (content,) = fake.left["i-0"].values()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert b"<!ENTITY l11" in archive.read("xl/worksheets/sheet1.xml")
    golden = {fake.items[0].reference_files[0].name: workbook(2, 4)}
    case = Case(benchmark="spreadsheetbench", item=fake.items[0], trajectory=row)
    score = score_files(case, fake.left["i-0"], golden)
    assert (score.hard, score.soft) == (0.0, 0.0)
    assert score_files(case, {row.files[0]: workbook(2, 4)}, golden).hard == 1.0


def test_speak_for_other_items(attack, caplog):
    code = """
for name in ("i-0", "i-2", "stranger", "../i-0", "i-1"):
    row("forged", item_id=name)
row("again")
row("x", status="excellent")
"""
    broken = attack(code).run()
    assert broken.answer == "forged"
    assert caplog.text.count("is not open in this container") == 5


SURVIVE = """
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp("python3", ["python3", "-c", "import time; time.sleep(600)", item["public"]["mark"]])
        os._exit(0)
time.sleep(0.5)
ask()
time.sleep(600)
"""


def processes(mark: str) -> list[int]:
    """Processes of this machine with the mark in their arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and mark.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def gone(mark: str) -> bool:
    deadline = time.monotonic() + 30
    while processes(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not processes(mark)


def telling(asked: threading.Event) -> Callable[[Asked], Reply]:
    def answer(question: Asked) -> Reply:
        asked.set()
        return answer_all(question)

    return answer


def test_survive_the_stop_of_the_task(attack):
    asked, ended = threading.Event(), []

    def run() -> None:
        try:
            broken.operator.execute({})
        except SandboxError as error:
            ended.append(error)

    mark = f"mark-{os.getpid()}-stop"
    with ScriptedProvider(telling(asked)) as provider:
        broken = attack(SURVIVE, provider, {"mark": mark})
        # The others' containers may not be gone yet when this one's item asks.
        broken.fake.items = broken.fake.items[1:2]
        task = threading.Thread(target=run)
        task.start()
        assert asked.wait(60)
        assert len(processes(mark)) == 2
        (container,) = leftovers(broken.client, broken.fake)
        folder = Path(container.labels[FOLDER_LABEL])
        broken.operator.on_kill()
        left = leftovers(broken.client, broken.fake)
        task.join(60)

    assert left == []
    assert "stopped" in str(ended[0])
    assert gone(mark)
    assert not folder.exists()
    assert HOSTILE not in broken.fake.statuses()


def test_survive_the_death_of_the_task(attack, docker_host):
    asked = threading.Event()
    mark = f"mark-{os.getpid()}-death"
    with ScriptedProvider(telling(asked)) as provider:
        broken = attack(SURVIVE, provider, {"mark": mark})
        fake, harmless = broken.fake, broken.fake.items[0]
        fake.items = fake.items[1:2]
        with task_process(fake, docker_host) as task:
            assert asked.wait(60)
            task.send_signal(signal.SIGKILL)
            task.wait()
            (container,) = leftovers(broken.client, fake)
            folder = Path(container.labels[FOLDER_LABEL])
            assert len(processes(mark)) == 2

        fake.items = [harmless]
        broken.operator.execute({})

    assert fake.statuses() == {"i-0": Status.OK}
    assert gone(mark)
    assert leftovers(broken.client, fake) == []
    assert not folder.exists()


def test_the_page_and_this_suite_name_the_same_cases():
    page = (PROJECT / "docs" / "sandbox.md").read_text()
    suite = re.findall(r"^def (test_\w+)\(", Path(__file__).read_text(), re.MULTILINE)
    suite.remove("test_the_page_and_this_suite_name_the_same_cases")
    assert re.findall(r"`(test_\w+)` \|$", page, re.MULTILINE) == suite
