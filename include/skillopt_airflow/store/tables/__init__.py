"""Parquet tables: rollouts, model calls, nights, matrices.

Enter by parquet.py, which has the schemas and the parts.
Documents of a run are in store/run_states.py.
"""
