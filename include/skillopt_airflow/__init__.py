"""SkillOpt on Airflow: train, gate, publish and re-gate the skills of agents.

Enter by pipeline/training.py, the algorithm; consumer.py is the one file that deployments copy.
benchmarks.py finds and loads the benchmarks, which lie outside of this package.
"""
