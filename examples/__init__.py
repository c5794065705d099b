"""Programs on top of privfed; most are scripts; `dcfl` and `rdpcfl` are packages that benchmarks import."""
