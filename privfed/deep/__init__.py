"""Federated learning of models for clusters of clients: DCFL, CFL, IFCA, FedAvg (extra `privfed[deep]`)."""
