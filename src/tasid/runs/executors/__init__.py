"""Jobs done elsewhere: by processes of this machine, or by a Ray cluster.

`dispatch` says what an executor is and does all tasks of a sweep by one; `processes` and `cluster`
are the two there are.
"""
