"""The local platform: everything that a training needs, on one machine and in one folder."""
