"""The local platform: all services that a training needs, on one machine and in one folder."""
