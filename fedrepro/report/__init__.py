"""The report for readers: tables, figures, claims, summaries, the page."""
