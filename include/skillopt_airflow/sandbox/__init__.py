"""The host's side of a container: its inputs, its limits, and checks of its output.

Enter by container_loop.py, one loop over Docker, pods and plain processes.
The program inside the container is rollout/.
"""
