"""What all attacks share: interface, evidence of a view, results, measures, bounds, reports."""
