"""What people read: tables, figures, claims, summaries, the page."""
