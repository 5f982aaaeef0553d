"""Parquet tables: rollouts, model calls, nights, matrices.

Enter by parquet.py, which contains the schemas and the parts.
The states of a run are in store/run_states.py.
"""
