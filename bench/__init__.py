"""What barco costs and what it yields, measured: one question per file. See README.md here."""
