"""Codes of errors of the client itself; brokers have their own."""

from enum import IntEnum


class ClientCode(IntEnum):
    """Errors that no broker has answered, by the reference's numbers. Source: RocketMQ 4.9 `ClientErrorCode`."""

    NONE = -1
    CONNECT_BROKER = 10001
    ACCESS_BROKER_TIMEOUT = 10002
    BROKER_NOT_EXIST = 10003
    NO_NAME_SERVER = 10004
    NOT_FOUND_TOPIC = 10005
    REQUEST_TIMEOUT = 10006
    CREATE_REPLY_MESSAGE = 10007
