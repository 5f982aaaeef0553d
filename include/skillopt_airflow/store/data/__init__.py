"""Datasets: files of records become items, with their pictures, documents and other files.

Enter by datasets.py; record_files.py reads CSV, JSON and Parquet.
Prompts are made from records in tasks/declared_task.py.
"""
