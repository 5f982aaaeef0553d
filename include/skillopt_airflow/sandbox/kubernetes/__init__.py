"""Pods on a Kubernetes cluster, and file transfer if worker and sandbox share no folder.

Enter by runtime.py; courier.py moves files, for remote Docker engines as well.
The limits of a pod are in sandbox/docker/limits.py.
"""
