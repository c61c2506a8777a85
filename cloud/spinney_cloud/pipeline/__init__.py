"""The data pipeline: PySpark on the log. Needs spinney[pipeline]."""
