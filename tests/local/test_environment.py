import json
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest

from local.environment import (
    DEPLOYMENT_VARIABLE,
    IDLE_VARIABLE,
    OPTIMIZER_CONNECTION,
    S3_CONNECTION,
    TARGET_CONNECTION,
    inherited,
    model_url,
    own_connections,
    platform_variables,
    s3_url,
    uses_stand_in,
)
from local.home import Home, Workers
from skillopt_airflow.benchmarks import LIST_VARIABLE
from skillopt_airflow.core.errors import PlatformError


def test_another_airflow_of_the_user_is_left_out():
    foreign = {"AIRFLOW_HOME": "/x", "AIRFLOW_CONFIG": "/x/airflow.cfg", "AIRFLOW__CORE__EXECUTOR": "x"}
    outer = {**foreign, "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/bin"}
    assert inherited(outer) == {"PATH": "/bin"}


def test_without_connections_both_models_are_the_stand_in(home: Home):
    settings = home.read()
    variables = platform_variables(home, settings, {})
    models = [json.loads(variables[name])["extra"]["model"] for name in (TARGET_CONNECTION, OPTIMIZER_CONNECTION)]

    assert models == ["openai-chat:stand-in-target", "openai-chat:stand-in-optimizer"]
    assert json.loads(variables[TARGET_CONNECTION])["host"] == model_url(settings)
    assert uses_stand_in({TARGET_CONNECTION: "set"})


def test_a_connection_of_the_user_is_used_and_the_other_stays(home: Home):
    outer = {TARGET_CONNECTION: "mine"}
    variables = platform_variables(home, home.read(), outer)

    assert variables[TARGET_CONNECTION] == "mine"
    assert "stand-in-optimizer" in variables[OPTIMIZER_CONNECTION]
    assert not uses_stand_in(outer | {OPTIMIZER_CONNECTION: "mine too"})


def test_a_connection_of_the_last_start_is_missed_unless_it_is_set_to_nothing(home: Home):
    kept = own_connections({TARGET_CONNECTION: "mine", S3_CONNECTION: "mine", OPTIMIZER_CONNECTION: ""}, ())
    assert kept == (TARGET_CONNECTION, S3_CONNECTION)
    home.write(replace(home.read(), connections=kept))
    remembered = home.read().connections
    with pytest.raises(PlatformError, match=rf"the last start had {TARGET_CONNECTION} .*\({TARGET_CONNECTION}=\)"):
        own_connections({S3_CONNECTION: "mine"}, remembered)
    given_up = {TARGET_CONNECTION: "", S3_CONNECTION: "mine"}
    assert own_connections(given_up, remembered) == (S3_CONNECTION,)
    assert "stand-in-target" in platform_variables(home, home.read(), given_up)[TARGET_CONNECTION]
    assert uses_stand_in(given_up)


def test_airflow_and_the_stand_in_know_the_same_benchmarks(home: Home):
    listed = {LIST_VARIABLE: "searchqa,/srv/skills/invoices"}
    variables = platform_variables(home, home.read(), listed | {"SKILLOPT_OTHER": "x"})
    assert variables.items() >= listed.items()
    assert "SKILLOPT_OTHER" not in variables


def test_the_schedulers_pause_is_the_users_and_no_other_of_airflows_options(home: Home):
    own = {IDLE_VARIABLE: "1", "AIRFLOW__CORE__PARALLELISM": "1"}
    variables = platform_variables(home, home.read(), own)
    assert (variables[IDLE_VARIABLE], variables["AIRFLOW__CORE__PARALLELISM"]) == ("1", "8")
    assert platform_variables(home, home.read(), {})[IDLE_VARIABLE] == "0.1"


def test_the_s3_connection_leads_to_the_s3_server(home: Home):
    settings = home.read()
    address = urlsplit(platform_variables(home, settings, {})["AIRFLOW_CONN_SKILLOPT_S3"])

    assert address.scheme == "aws"
    assert parse_qs(address.query)["endpoint_url"] == [s3_url(settings)]


def test_loopback_is_reached_without_the_users_proxy(home: Home):
    variables = platform_variables(home, home.read(), {"NO_PROXY": "intranet,localhost"})
    assert variables["NO_PROXY"] == "intranet,localhost,127.0.0.1"
    variables = platform_variables(home, home.read(), {"no_proxy": "localhost,.corp", "NO_PROXY": "intranet"})
    assert variables["NO_PROXY"] == variables["no_proxy"] == "localhost,.corp,intranet,127.0.0.1"


def test_celery_runs_the_tasks_where_there_are_workers(home: Home):
    settings = home.read()
    spread = replace(settings, workers=Workers(3, 2))
    one, several = (platform_variables(home, each, {}) for each in (settings, spread))

    assert one["AIRFLOW__CORE__EXECUTOR"] == "LocalExecutor"
    assert several["AIRFLOW__CORE__EXECUTOR"] == "CeleryExecutor"
    assert several["AIRFLOW__CELERY__BROKER_URL"] == f"redis+socket://{home.sockets}/broker.sock"
    assert several["AIRFLOW__LOGGING__REMOTE_BASE_LOG_FOLDER"].startswith("s3://")


def test_the_administrators_file_is_the_users_or_the_platforms(home: Home):
    settings = home.read()

    assert platform_variables(home, settings, {})[DEPLOYMENT_VARIABLE] == str(home.deployment_file)
    assert platform_variables(home, settings, {DEPLOYMENT_VARIABLE: "/mine"})[DEPLOYMENT_VARIABLE] == "/mine"
