"""The bodies of Airflow's tasks: open a run, call one stage of training/, return a small reference.

Enter by stages.py.
The order of the tasks is in pipeline/training.py.
"""
