import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent

SETTINGS = """
[dag_processor]
min_file_process_interval = 3600
[api]
auto_refresh_interval = 45
"""
"""Of the platform's Airflow. Who brings a benchmark touches the DAG files, which saves parsing them twice a minute; and
its own pages are drawn anew less often."""


class RunningPlatform:
    """What tests need of a platform that is up."""

    def __init__(self, home: Path) -> None:
        from local import airflow_services, objectstore
        from local.environment import environment, s3_url
        from local.home import Home

        self.home = Home.at(home)
        self.settings = self.home.read()
        self.environment = environment(home)
        self.api = airflow_services.api(self.settings)
        self.s3 = objectstore.client(s3_url(self.settings))

    def close(self) -> None:
        """Close the connections; the platform stays up."""
        self.api.close()
        self.s3.close()


def write_settings(home: Path) -> None:
    """Write the settings of the Airflow in a home, before it is started there first."""
    settings = home / "airflow" / "airflow.cfg"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(SETTINGS)


def control(home: Path, command: str, *options: str, **variables: str) -> None:
    """`python -m local COMMAND` on the home, as `make` calls it, with the models of the stand-in."""
    from local.environment import DEPLOYMENT_VARIABLE, OPTIMIZER_CONNECTION, TARGET_CONNECTION, inherited

    others = {OPTIMIZER_CONNECTION, TARGET_CONNECTION, DEPLOYMENT_VARIABLE}
    outer = {name: value for name, value in os.environ.items() if name not in others}
    done = subprocess.run(
        [sys.executable, "-m", "local", command, "--home", str(home), *options],
        cwd=PROJECT,
        env=inherited(outer) | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
