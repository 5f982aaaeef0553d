"""A Docker engine: its connection, containers and their limits, images of items.

Enter by container.py. The limits of a container are in limits.py.
The loop over containers is in sandbox/docker_runtime.py.
"""
