"""The nouns: questions, statistics, secure sums, engines, transcripts, and the door between them."""
