"""For a process with an Airflow of its own, see own_airflow: a DAG file that Airflow has read."""

from pathlib import Path

from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db
from airflow.sdk import DAG
from airflow.utils.db import initdb

BUNDLE = "dags-folder"


def store_dag(folder: Path) -> DAG:
    """What the DAG processor does with the only file of a folder, which has one DAG; returns that."""
    initdb()
    DagBundlesManager().sync_bundles_to_db()
    bag = BundleDagBag(folder, bundle_path=folder, bundle_name=BUNDLE)
    assert not bag.import_errors, bag.import_errors
    sync_bag_to_db(bag, BUNDLE, None)
    [dag] = bag.dags.values()
    return dag
