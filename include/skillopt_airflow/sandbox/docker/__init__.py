"""A Docker engine: its connection, containers and their limits, images of items.

Enter by container.py; limits.py has what a container may use.
The loop over containers is in sandbox/docker_runtime.py.
"""
