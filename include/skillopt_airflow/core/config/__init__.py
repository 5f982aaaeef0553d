"""Every knob of a training, with its default.

Enter by train_config.py, which joins the groups; each group holds its knobs and says their units.
The section `task` is read in tasks/task_group.py; files of settings are read in training/prepare/benchmark_settings.py.
"""
