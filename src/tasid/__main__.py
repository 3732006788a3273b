"""`python -m tasid`: the command line."""

from tasid.cli import main

main()
