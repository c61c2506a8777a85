"""The cloud broker: one durable log, and the processes around it that receive, match and deliver."""
