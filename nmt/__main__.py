"""`python -m nmt`, the same as `nmt`."""

from nmt.cli.app import main

if __name__ == "__main__":
    main()
