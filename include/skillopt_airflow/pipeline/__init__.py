"""The DAGs; training.py is the algorithm.

Enter by training.py; all_dags.py makes the DAGs of every benchmark.
What their tasks do is in tasks/, and without Airflow in training/.
"""
