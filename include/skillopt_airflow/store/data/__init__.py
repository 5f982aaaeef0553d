"""Data sets: files of records become items, with their pictures, documents and other files.

Enter by datasets.py; record_files.py reads CSV, JSON and Parquet.
How a record becomes a prompt is in tasks/declared_task.py.
"""
