"""Runs over several machines: the folders of a federation, Flower's processes, and what starts them."""
