"""The DAGs; training.py is the algorithm.

Enter by training.py; all_dags.py makes the DAGs of every benchmark.
The bodies of tasks are in tasks/, the stages without Airflow in training/.
"""
