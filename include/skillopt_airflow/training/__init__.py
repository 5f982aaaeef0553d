"""A run and its stages without Airflow: load, call one pure function, store.

Enter by step/, whose modules follow the algorithm; bench/training_loop.py runs all stages in a row.
The tasks that call these stages are in pipeline/tasks.
"""
