"""`python -m rocketpy`: the same as the command `rocketpy`."""

from rocketpy.cli.main import rocketpy

if __name__ == "__main__":
    rocketpy()
