"""Fedge: a simulator for hierarchical, clustered federated learning on Flower and Ray."""
