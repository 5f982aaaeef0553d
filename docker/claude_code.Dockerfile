# The sandbox image with the Claude Code CLI. local/image.py stages its context: `cli`, the native program as npm
# publishes it, which needs no node. What it keeps goes to the home that include/skillopt_airflow/rollout/harnesses/claude_code.py gives it for one
# item.
ARG BASE=skillopt-sandbox:latest
FROM ${BASE}
COPY cli /opt/claude-code
ENV PATH=/opt/claude-code:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
