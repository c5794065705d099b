"""The set-up that masked sums and sums that clients open share: identities, roster, terms, graph."""
