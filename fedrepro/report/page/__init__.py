"""reports/index.html: every published number beside ours, why the two differ, and the command that rebuilds it.

One file that needs nothing else, made of the evaluated frames, the specs, the records, and the pictures of the report.
"""
