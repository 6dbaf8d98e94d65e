"""kofn inside other tools: pytest, Inspect, lm-evaluation-harness, training loops, MLflow, Weights & Biases.

In: what those tools hand over. Out: what they expect. Imports everything but the viewer and the command line.
Nothing is exported here: pytest imports this package in every session, before it knows whether it needs kofn.
"""
