"""The comparison of Forebay with its peers; `__main__.py` is the command."""
