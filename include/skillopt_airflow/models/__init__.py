"""From an Airflow connection to a model, and the prices of its calls.

Enter by connection.py; providers.py has one function per kind of connection.
Retries and rate limits of the target's calls are in gateway/.
"""
