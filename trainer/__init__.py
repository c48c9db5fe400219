"""A compact trainer for reinforcement learning of language models whose log ``fit-curve`` reads.

Importing the package loads no torch and no transformers; see ``train-rl --help``.
"""
