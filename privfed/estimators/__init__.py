"""Estimators, and functions such as the selection of the number of clusters that fit them."""
