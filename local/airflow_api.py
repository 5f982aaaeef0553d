"""A small client of Airflow's REST API."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from skillopt_airflow.core.errors import PlatformError

POLL_SECONDS = 1.0
REQUEST_SECONDS = 180.0
"""Long, because the server shares its CPUs with the tasks."""
PAGE_ROWS = 100
FINISHED = ("success", "failed")
Row = dict[str, Any]
"""A JSON object in Airflow's schema."""


class AirflowApi:
    """A client with one user's login; fetches a token on the first request and when it expires."""

    def __init__(self, url: str, username: str, password: str) -> None:
        self._login = {"username": username, "password": password}
        self._client = httpx.Client(base_url=url, timeout=REQUEST_SECONDS, trust_env=False)

    def close(self) -> None:
        self._client.close()

    def health(self) -> dict[str, Row]:
        """Return the components' states by name; empty if the server doesn't respond."""
        try:
            answer = self._client.get("/api/v2/monitor/health")
        except httpx.TransportError:
            return {}
        return dict(answer.json()) if answer.is_success else {}

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None, run_id: str | None = None) -> str:
        """Start a run and return its id."""
        body: Row = {"logical_date": None, "conf": dict(conf) if conf is not None else {}}
        if run_id is not None:
            body["dag_run_id"] = run_id
        return str(self.request("POST", f"/dags/{dag_id}/dagRuns", json=body)["dag_run_id"])

    def run(self, dag_id: str, run_id: str) -> Row:
        return self.request("GET", f"/dags/{dag_id}/dagRuns/{run_id}")

    def runs(self, dag_id: str) -> list[Row]:
        return self._pages(f"/dags/{dag_id}/dagRuns", "dag_runs", {"order_by": "-run_after"})

    def task_instances(self, dag_id: str, run_id: str) -> list[Row]:
        return self._pages(f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances", "task_instances", {})

    def log(self, dag_id: str, run_id: str, task_id: str, try_number: int, map_index: int = -1) -> list[str]:
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{try_number}"
        content = self.request("GET", path, params={"map_index": map_index, "full_content": True})["content"]
        return [line if isinstance(line, str) else _log_line(line) for line in content]

    def import_errors(self) -> dict[str, str]:
        """Return stack traces by DAG file."""
        errors = self._pages("/importErrors", "import_errors", {})
        return {str(error["filename"]): str(error["stack_trace"]) for error in errors}

    def wait_for_dag(self, dag_id: str, seconds: float = 240.0) -> None:
        deadline = time.monotonic() + seconds
        while self.send("GET", f"/dags/{dag_id}").status_code != httpx.codes.OK:
            if time.monotonic() > deadline:
                broken = [f"{name}: {trace}" for name, trace in self.import_errors().items()]
                raise PlatformError("\n".join([f"the DAG {dag_id} did not appear in {seconds:.0f} s", *broken]))
            time.sleep(POLL_SECONDS)

    def wait(
        self, dag_id: str, run_id: str, on_poll: Callable[[Row], None] = lambda run: None, seconds: float = 3600.0
    ) -> str:
        """Poll until the run ends, with a call of `on_poll` each time, and return its final state."""
        deadline = time.monotonic() + seconds
        while True:
            run = self.run(dag_id, run_id)
            on_poll(run)
            if run["state"] in FINISHED:
                return str(run["state"])
            if time.monotonic() > deadline:
                raise PlatformError(f"{dag_id} {run_id} is still {run['state']} after {seconds:.0f} s")
            time.sleep(POLL_SECONDS)

    def request(self, method: str, path: str, **options: Any) -> Row:
        """Call an endpoint below /api/v2 and return its JSON object."""
        answer = self.send(method, path, **options)
        if answer.is_error:
            raise PlatformError(f"Airflow refused {method} {path} with {answer.status_code}: {_detail(answer)}")
        return dict(answer.json())

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Call an endpoint below /api/v2 and return its response with any status."""
        try:
            if "authorization" not in self._client.headers:
                self._log_in()
            answer = self._client.request(method, f"/api/v2{path}", **options)
            if answer.status_code == httpx.codes.UNAUTHORIZED:
                self._log_in()
                answer = self._client.request(method, f"/api/v2{path}", **options)
        except httpx.TransportError as error:
            raise PlatformError(f"Airflow at {self._client.base_url} does not answer: {error}") from error
        return answer

    def _pages(self, path: str, key: str, params: Mapping[str, Any]) -> list[Row]:
        rows: list[Row] = []
        while True:
            page = self.request("GET", path, params={**params, "limit": PAGE_ROWS, "offset": len(rows)})
            rows += page[key]
            if not page[key] or len(rows) >= page["total_entries"]:
                return rows

    def _log_in(self) -> None:
        answer = self._client.post("/auth/token", json=self._login)
        if answer.is_error:
            raise PlatformError(f"Airflow refused the login of {self._login['username']}: {_detail(answer)}")
        self._client.headers["authorization"] = f"Bearer {answer.json()['access_token']}"


def _detail(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:500]


def _log_line(event: Mapping[str, Any]) -> str:
    parts = [str(event[key]) for key in ("timestamp", "level", "event", "reason") if event.get(key) is not None]
    causes = [f"{cause['exc_type']}: {cause['exc_value']}" for cause in event.get("error_detail", [])]
    return "\n".join([" ".join(parts), *causes])
