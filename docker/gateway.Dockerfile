# The image of the model gateway and the courier, for sandboxes that see none of the worker's files: pods, and containers
# on an engine of another machine. local/image.py stages its context: `packages` (docker/gateway-requirements.txt, installed for the base's Python,
# so that the build needs no network) and `program` (core, gateway and the
# courier, of include/skillopt_airflow).
ARG BASE=python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d
FROM ${BASE}
# The official images of Python come without the bytecode of its library, and a read-only container cannot keep it.
RUN python3 -m compileall -q -j 0 -x '/(test|tests|idlelib|lib2to3|(site|dist)-packages)/' \
    "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
COPY packages /opt/skillopt/packages
COPY program /opt/skillopt/program
ENV PYTHONPATH=/opt/skillopt/program:/opt/skillopt/packages PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
RUN python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/skillopt \
 && useradd --uid 10002 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin skillopt
USER 10002:10002
WORKDIR /tmp
ENTRYPOINT ["python3", "-m", "skillopt_airflow.gateway.serve"]
CMD ["--listen", "0.0.0.0:8080"]
