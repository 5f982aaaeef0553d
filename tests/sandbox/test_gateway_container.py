import json

import pytest

from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.gateway.remaining_budget import RemainingBudget
from skillopt_airflow.gateway.serve import ServeConfig
from skillopt_airflow.sandbox.remote_folder import PROXIES, gateway_document, gateway_settings

NONE = RemainingBudget()


def test_a_workload_says_the_settings_that_the_program_reads(workload):
    work, left = workload(None, concurrency=5), RemainingBudget(calls=9)
    work.run_concurrency = 15
    found = gateway_settings(work, left)
    assert (found.stage, found.max_attempts, found.call_timeout, found.max_tokens) == ("rollout", 2, 60, 64)
    assert (found.max_concurrency, found.share, found.allowance) == (15, 5, left)
    # Of several gateways of the task, none knows what the others do.
    assert [gateway_settings(work, NONE, gateways).share for gateways in (2, 5, 9)] == [2, 1, 1]
    served = ServeConfig.model_validate_json(json.dumps(gateway_document(work, left)))
    assert served.upstream == work.upstream
    assert served.upstream.api_key.get_secret_value() == work.upstream.api_key.get_secret_value() != ""
    assert {name: value for name, value in served if name not in ("upstream", "proxies")} == dict(found)


def test_it_reaches_the_model_by_the_proxies_of_the_worker(monkeypatch, workload):
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://user:word@proxy.corp:3128")
    monkeypatch.setenv("no_proxy", ".corp")
    served = ServeConfig.model_validate_json(json.dumps(gateway_document(workload(None), NONE)))
    assert served.proxies == {"HTTPS_PROXY": "http://user:word@proxy.corp:3128", "no_proxy": ".corp"}


def test_a_gateway_that_is_no_part_of_the_task_has_no_search(workload):
    work = workload(None)
    work.search = object()
    with pytest.raises(ConfigError, match=r"search\.conn_id"):
        gateway_document(work, NONE)
