"""The nouns: questions, statistics, secure sums, engines, transcripts, and the federation that joins them."""
