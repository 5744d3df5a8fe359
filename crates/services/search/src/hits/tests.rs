//! Searches over small indices: orders, pages, totals, sources, highlights, refusals.
