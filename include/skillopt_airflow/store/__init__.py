"""The object store: keys, objects with conditional writes, published skills and their aliases.

Enter by keys.py; aliases.py moves an alias such as champion.
Rows are in tables/, data sets in data/; what is stored when is decided in training/.
"""
