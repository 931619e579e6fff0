"""Protocol stories as transcripts; see README.md."""
