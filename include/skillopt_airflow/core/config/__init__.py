"""The knobs of a training and their defaults.

Start with train_config.py, which joins the groups; each group documents its knobs and their units.
tasks/task_group.py reads the section `task`, and training/prepare/benchmark_settings.py reads files of settings.
"""
