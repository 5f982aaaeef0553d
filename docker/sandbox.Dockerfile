# The image that rollouts run in. local/image.py stages its context: `packages` (docker/sandbox-requirements.txt,
# installed for the base's Python, so that the build needs no network but for git) and `program` (what
# include/skillopt_airflow/rollout imports).
ARG BASE=python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d
FROM ${BASE}
# What the target changes in an item's repository is found by git. Where Debian's mirror does not answer, all other items
# run all the same.
RUN command -v git \
 || { timeout 300 apt-get update && apt-get install --yes --no-install-recommends git; rm -rf /var/lib/apt/lists/*; command -v git; } \
 || echo 'git cannot be installed: no item that brings a repository runs in this image'
# The official images of Python come without the bytecode of its library, and a read-only container cannot keep it.
RUN python3 -m compileall -q -j 0 -x '/(test|tests|idlelib|lib2to3|(site|dist)-packages)/' \
    "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
COPY packages /opt/skillopt/packages
RUN python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/skillopt/packages
COPY program /opt/skillopt/program
ENV PYTHONPATH=/opt/skillopt/program:/opt/skillopt/packages PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
# An adapter with a mistake in it fails its own benchmark's runs, not the image of all the others.
RUN python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash -x /project/ /opt/skillopt/program \
 && { python3 -m compileall -q --invalidation-mode unchecked-hash /opt/skillopt/program/skillopt_airflow/project || true; } \
 && useradd --uid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin skillopt
USER 10001:10001
WORKDIR /tmp
# PID 1 ignores a SIGTERM that it has no handler for, and `docker stop` would wait for nothing.
STOPSIGNAL SIGKILL
ENTRYPOINT ["python3", "-m", "skillopt_airflow.rollout"]
CMD ["/in", "/out"]
