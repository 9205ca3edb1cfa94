"""`python -m baton_cli` is the `baton` command."""

from baton_cli.app import main

if __name__ == "__main__":
    main()
