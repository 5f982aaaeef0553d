"""Datasets: reading files of records (CSV, JSON, Parquet), their pictures, documents and other files.

Enter by datasets.py; record_files.py has the formats.
Records become items in training/prepare/records_to_items.py, and prompts in tasks/declared_task.py.
"""
