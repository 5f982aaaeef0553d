"""Rollouts of many items: plans, chunks, scoring, batch jobs.

Enter by rollout_plan.py and workload.py.
Containers are in sandbox/, the program in them in rollout/.
"""
