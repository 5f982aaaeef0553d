"""The pages of a run's report and of its data quality, and the plots.

Enter by run_page.py.
What they show is collected in training/report; Airflow serves them through ui/.
"""
