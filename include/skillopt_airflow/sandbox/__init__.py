"""The host's side of a container: what enters, how long it may run, what is believed of what comes out.

Enter by container_loop.py, one loop over Docker, pods and plain processes.
The program inside the container is rollout/.
"""
