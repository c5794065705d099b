"""The server's part: which questions a round asks, and what becomes of clusters and models by the totals."""
