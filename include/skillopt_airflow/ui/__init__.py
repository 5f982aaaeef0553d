"""Pages that the plugin mounts in Airflow's API server."""
