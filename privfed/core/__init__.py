"""The core types: questions, statistics, secure sums, engines, transcripts, and the federation of them."""
