"""`python -m rocketpy`: the same as the command `rocketpy`."""

from rocketpy.startup.main import rocketpy

if __name__ == "__main__":
    rocketpy()
