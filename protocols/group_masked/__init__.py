"""Group-masked sums: clients add pairwise masks and one group mask, and open the totals themselves."""
