"""What users fit: FedAvg, IFCA, CFL and DCFL over any registered model, torch module or secure sum."""
