"""From an Airflow connection to a model, and what its calls cost.

Enter by connection.py; providers.py has a function for each kind of connection.
Retries and pacing of the target's calls are in gateway/.
"""
