"""Private statistics and SQL: what may be asked of data about people, and what it costs."""
