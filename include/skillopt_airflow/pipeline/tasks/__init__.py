"""What Airflow's tasks do: they open a run, call one stage of training/ and return a small reference.

Enter by stages.py.
The order of the tasks is in pipeline/training.py.
"""
