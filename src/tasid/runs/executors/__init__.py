"""Jobs done elsewhere: by processes of this machine, or by a Ray cluster.

`protocol` says what an executor is, `processes` and `cluster` are the two there are, and
`dispatch` does all tasks of a sweep by one of them.
"""
