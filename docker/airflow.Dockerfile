# Airflow with this project, for hosts and clusters: the processes of an installation differ by their command alone.
# local/image.py stages its context: `packages` (requirements.txt, docker/airflow-requirements.txt and the project's wheel,
# installed for the base's Python, so that the build needs no network) and `program` (the files of the DAGs and of the
# plugin). Where a registry answers, BASE=apache/airflow:3.3.2-python3.11 does, too: its entrypoint stays, and the packages
# here win over its own.
ARG BASE=python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d
FROM ${BASE}
USER 0:0
COPY packages /opt/skillopt/packages
COPY program/dags /opt/airflow/dags
COPY program/plugins /opt/airflow/plugins
# The scripts among the packages name the Python that fetched them, and some packages have files for other Pythons.
RUN rm -rf /opt/skillopt/packages/bin \
 && { python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash -x /project/ /opt/skillopt || true; }
# The user and the group that Airflow's own image has and its chart expects, which also probes with `python`.
RUN printf '#!/bin/sh\nexec python3 -m airflow "$@"\n' > /usr/local/bin/airflow \
 && chmod 755 /usr/local/bin/airflow \
 && { command -v python || ln -s "$(command -v python3)" /usr/local/bin/python; } \
 && { id 50000 || useradd --uid 50000 --gid 0 --no-create-home --home-dir /opt/airflow airflow; } \
 && chown -R 50000:0 /opt/airflow && chmod -R g=u /opt/airflow
ENV PYTHONPATH=/opt/skillopt/packages PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/opt/airflow \
    AIRFLOW_HOME=/opt/airflow AIRFLOW__CORE__LOAD_EXAMPLES=False
USER 50000:0
WORKDIR /opt/airflow
CMD ["airflow", "version"]
