"""What runs inside the sandbox: the standard library only, mounted read-only, trusted by nobody.

`keeper` starts a process for each test and reports how it ended; `program` is what such a process
does; `remote` lets tests call a program that lives in another process, over `plain` data alone.
"""
