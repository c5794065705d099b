"""The set-up common to masked sums and to sums that clients open: identities, roster, terms, graph."""
