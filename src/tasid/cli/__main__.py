"""`python -m tasid.cli`."""

from tasid.cli import main

main()
