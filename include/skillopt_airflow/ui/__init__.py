"""The pages that the plugin mounts in Airflow's API server: reports, rollouts, skills.

Start with plugin.py; access.py checks permissions. report/ renders the content of a report.
"""
