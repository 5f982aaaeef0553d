from skillopt_airflow.core.config.resource_groups import SandboxGroup
from skillopt_airflow.sandbox.docker.limits import (
    BUILD_SECONDS,
    LAYOUT_SECONDS,
    PACKAGES_SECONDS,
    build_options,
    end_reason,
    host_options,
    parallel_containers,
    repository_seconds,
    task_seconds,
)


def test_the_limits_reach_docker():
    options = host_options(SandboxGroup(memory="256m", cpus=0.5, output_mb=3))

    assert options["mem_limit"] == options["memswap_limit"] == "256m"
    assert (options["pids_limit"], options["nano_cpus"]) == (128, 500_000_000)
    assert options["cap_drop"] == ["ALL"]
    assert options["read_only"]
    assert {limit["Name"]: limit["Hard"] for limit in options["ulimits"]}["fsize"] == 3 * 1024 * 1024
    assert options["log_config"]["Config"] == {"max-size": "1m", "max-file": "1"}


def test_an_image_is_made_with_rights_over_files_alone():
    options = build_options(SandboxGroup(cpus=0.5))

    assert (options["cap_drop"], options["cap_add"]) == (["ALL"], ["DAC_OVERRIDE", "FOWNER"])
    assert options["security_opt"] == ["no-new-privileges:true"]
    assert options["mem_limit"] == options["memswap_limit"]
    assert (options["network_mode"], options["nano_cpus"]) == ("none", 500_000_000)


def test_containers_at_the_same_time_leave_half_of_the_engines_memory():
    limits = SandboxGroup(memory="512m")
    gigabyte = 2**30
    assert parallel_containers(limits, 8, 32, 64 * gigabyte) == 8
    assert parallel_containers(limits, 8, 32, 24 * gigabyte) == 6
    assert parallel_containers(limits, 8, 32, 2 * gigabyte) == 1
    assert parallel_containers(limits, 32, 32, 24 * gigabyte) == 24
    assert parallel_containers(SandboxGroup(memory="2g"), 8, 8, 24 * gigabyte) == 6


def test_a_container_has_time_for_items_one_after_the_other_and_a_task_for_more():
    assert task_seconds(SandboxGroup(timeout=60), 20) == 21 * 60
    assert task_seconds(SandboxGroup(timeout=60), 1, start_seconds=10) == 2 * 70
    built, judged = PACKAGES_SECONDS + BUILD_SECONDS, 50 + 2 * LAYOUT_SECONDS
    assert repository_seconds(SandboxGroup(test_timeout=50)) == built + judged


def test_an_end_is_told_and_a_kill_that_the_engine_has_not_explained_yet_names_the_limit() -> None:
    limits = SandboxGroup(memory="1g")
    for state in ({"OOMKilled": True, "ExitCode": 137}, {"ExitCode": 137}):
        assert "sandbox.memory = 1g" in end_reason(state, limits)
    assert "most often" in end_reason({"ExitCode": 137}, limits)
    assert "exit status 3" in end_reason({"OOMKilled": False, "ExitCode": 3}, limits)
