"""``python -m decima`` is the command ``decima``."""

from decima.cli.main import main

if __name__ == "__main__":
    main()
