"""The report of a run, the data quality page, and the plots.

Start with run_page.py. training/report collects the data; ui/ serves the pages in Airflow.
"""
