"""The interfaces of algorithms, secure sums, carriers and clients."""
