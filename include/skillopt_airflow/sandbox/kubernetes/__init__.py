"""Pods on a Kubernetes cluster, and the way of files where worker and sandbox share no folder.

Enter by runtime.py; courier.py moves files, for remote Docker engines as well.
The limits of a pod are those of sandbox/docker/limits.py.
"""
