"""`python -m opteq`."""

from opteq.cli.app import main

if __name__ == "__main__":
    main()
