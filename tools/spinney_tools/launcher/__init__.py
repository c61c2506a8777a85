"""What ./spinney needs beyond its own file: answers before anything is installed, and the progress of pip.

Standard library only, nothing of any command: Python finds this in the source tree, beside nothing else.
"""
