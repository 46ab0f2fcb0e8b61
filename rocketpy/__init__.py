"""rocketpy: an Apache RocketMQ 4.x compatible broker, name server, client and admin tool."""

__version__ = "0.1.0"
