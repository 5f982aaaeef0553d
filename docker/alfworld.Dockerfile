# The sandbox image with the engine of ALFWorld's games. local/image.py stages its context: `packages`
# (docker/alfworld-requirements.txt, and the planner's library, compiled outside, so that no compiler enters the image).
ARG BASE=skillopt-sandbox:latest
FROM ${BASE}
USER 0:0
COPY packages /opt/alfworld/packages
RUN python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/alfworld || true
USER 10001:10001
ENV PYTHONPATH=/opt/skillopt/program:/opt/skillopt/packages:/opt/alfworld/packages ALFWORLD_DATA=/tmp
# Each game is a process of its own, and the pool of threads of each counts among the container's processes.
ENV OPENBLAS_NUM_THREADS=1
