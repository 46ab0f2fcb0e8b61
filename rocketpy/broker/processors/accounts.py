"""Access control for operators: accounts (50, 51, 54), versions of their files (52), global white lists (53).

A change is written to the file that has the account, and counts for the next request in every process.
Source: RocketMQ 4.9 `AdminBrokerProcessor`. Different: without access control its texts are empty and 52 is not
answered; here each answer says why. 54 lists the accounts without their secrets, where RocketMQ 4.9.7 answers 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import RequestRefused
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand

from ..services import BrokerServices
from .table import TableProcessor

if TYPE_CHECKING:
    from ..access import AccountsKeeper

OFF = "access control is off on this broker (aclEnable=false)"
_Code = ResponseCode
FAILURES = {
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: _Code.UPDATE_AND_CREATE_ACL_CONFIG_FAILED,
    RequestCode.DELETE_ACL_CONFIG: _Code.DELETE_ACL_CONFIG_FAILED,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: _Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: _Code.SYSTEM_ERROR,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: _Code.REQUEST_CODE_NOT_SUPPORTED,
}
"""Codes of the answers without access control."""


class AccountProcessor(TableProcessor):
    """Shows and changes the files of accounts."""

    def __init__(self, services: BrokerServices) -> None:
        super().__init__(
            {
                RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: self._update,
                RequestCode.DELETE_ACL_CONFIG: self._delete,
                RequestCode.GET_BROKER_CLUSTER_ACL_INFO: self._versions,
                RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: self._update_white_addresses,
                RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: self._list,
            }
        )
        self._services = services

    def _accounts(self, request: RemotingCommand) -> AccountsKeeper:
        """Raises RequestRefused: access control is off."""
        accounts = self._services.accounts
        if accounts is None:
            raise RequestRefused(FAILURES[RequestCode(request.code)], OFF)
        return accounts

    async def _update(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        await self._accounts(request).update(request)
        return RemotingCommand.response()

    async def _delete(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        await self._accounts(request).delete(request)
        return RemotingCommand.response()

    async def _update_white_addresses(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        await self._accounts(request).update_white_addresses(request)
        return RemotingCommand.response()

    async def _versions(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        settings = self._services.settings.value
        header = self._accounts(request).files.version_header(
            broker_name=settings.broker.broker_name,
            broker_addr=settings.broker_addr,
            cluster_name=settings.broker.broker_cluster_name,
        )
        return RemotingCommand.response(header=header)

    async def _list(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        return RemotingCommand.response(body=self._accounts(request).files.listed.encode())
