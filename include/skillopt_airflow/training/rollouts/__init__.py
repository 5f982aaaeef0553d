"""Rollouts of many items: which are missing, how they are run, and how they are judged.

Enter by rollout_plan.py and workload.py.
Containers are in sandbox/, the program in them in rollout/.
"""
