"""The pages that the plugin mounts in Airflow's API server: reports, rollouts, skills.

Enter by plugin.py; access.py says who may see a page.
What a report shows is made in report/.
"""
