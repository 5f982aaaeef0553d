"""The subjects of the project's benchmarks."""

from collections.abc import Iterable, Sequence

from local.standin.stage_request import SeenTrajectory
from local.standin.subject import Subject
from skillopt_airflow import benchmarks

FILE = "standin"
SUBJECTS: Sequence[Subject] = tuple(
    benchmarks.load_file(name, FILE).STANDIN
    for name in benchmarks.names()
    if (benchmarks.folder(name) / f"{FILE}.py").is_file()
)


def subject_of(trajectories: Iterable[SeenTrajectory]) -> Subject | None:
    """Return what the first trajectory that tells is about; None stands for documents."""
    return next((subject for one in trajectories for subject in SUBJECTS if subject.shown_by(one)), None)
