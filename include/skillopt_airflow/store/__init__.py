"""The object store: keys, objects with conditional writes, published skills and their aliases.

Enter by keys.py; aliases.py moves an alias such as champion.
Rows are in tables/, datasets in data/. The time of each write is decided in training/.
"""
