"""The report for a browser: reports/index.html, one screen about all papers, and reports/<paper>.html for each of them.

Made of the evaluated frames, the specs, the records, and the pictures of the report; or all of it in one file, to send.
"""
