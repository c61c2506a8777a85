"""How a batch of the log becomes part of the lake: tasks write Parquet files, the driver commits them.

    task (an executor)    files.py    its part of the log, decoded, split by table and partition, as Parquet files
                          stats.py    what Delta's log says about the values in a file
    driver                commit.py   all files of a batch that belong to a table, in one Delta transaction
                          probe.py    at the start: whether every executor sees the lake
    maintenance           leftover.py files that no transaction will ever name are deleted

A file's name says which records of the log it was written from: `log-FIRST-LAST-RANDOM.parquet`. The tables move
forward in the log only. So a file whose FIRST is no later than what the observations have, and which no transaction
names, was written by an attempt that failed, was repeated, or lost against a speculative copy: it can be deleted
whenever it is met. One whose FIRST is later may belong to the batch that is open, and stays. No clock is asked.
"""
