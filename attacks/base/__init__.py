"""The parts that all attacks share: interface, evidence from a view, results, measures, bounds, reports."""
