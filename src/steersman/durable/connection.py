"""The connections of supervised sessions: a Temporal server that answers, and a store that others can reach."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, DescribeNamespaceResponse
from temporalio.client import Client as TemporalClient
from temporalio.service import GrpcCompression, RPCError, RPCStatusCode

from steersman.durable.errors import DurableError
from steersman.session.opening import Where, open_store
from steersman.session.stores.memory import MemoryStore
from steersman.session.stores.store import SharedStore
from steersman.types.guards import is_instance

CONNECT_SECONDS = 10.0
_RETRY_SECONDS = 0.2
_WORDS = re.compile(r'(?:message|error): "([^"]+)"')
RPC_TIMEOUT = timedelta(seconds=10)
# RESOURCE_EXHAUSTED is what a busy server says, also of a single run; UNKNOWN what a call ends with whose connection
# broke under it.
_PASSING = (
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.UNKNOWN,
)


async def connect(temporal: str | TemporalClient, namespace: str) -> TemporalClient:
    """A client of the server at `host:port`, or the given one; raises `DurableError` if its namespace is of no use."""
    if isinstance(temporal, TemporalClient):
        client = temporal
    else:
        if not is_instance(temporal, str):
            raise TypeError(f"temporal is 'host:port' or a connected temporalio.client.Client, got {temporal!r}.")
        if "://" in temporal:
            raise DurableError(f"Temporal is named by host:port, without a scheme, got {temporal!r}.")
        client = await _connect(temporal, namespace)
    try:
        request = DescribeNamespaceRequest(namespace=client.namespace)
        found = await client.workflow_service.describe_namespace(request, retry=False, timeout=RPC_TIMEOUT)
    except RPCError as error:
        raise describe_rpc_error(error, client.namespace) from error
    check_namespace(found)
    return client


def check_namespace(found: DescribeNamespaceResponse) -> None:
    """Raise `DurableError` if the server does not run activities without a workflow."""
    if not found.namespace_info.capabilities.standalone_activities:
        raise DurableError(
            f"Temporal runs no standalone activities in the namespace {found.namespace_info.name!r}. It needs a server "
            "of version 1.31 or newer (temporal 1.7), with activity.enableStandalone not switched off."
        )


async def _connect(address: str, namespace: str) -> TemporalClient:
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await _connect_once_healthy(address, namespace)
    except TimeoutError as error:
        raise DurableError(f"Temporal at {address!r} gave no answer within {CONNECT_SECONDS:.0f} s.") from error
    except (RuntimeError, ValueError) as error:
        raise DurableError(
            f"Temporal cannot be reached at {address!r}: {_find_reason(error)}. Is it host:port, and is it running?"
        ) from error


async def _connect_once_healthy(address: str, namespace: str) -> TemporalClient:
    """Connect; a server that has just been started says for a moment that it is not healthy yet."""
    while True:
        try:
            # What is sent is a few names and numbers, and gzip would cost both sides more than it saves.
            return await TemporalClient.connect(address, namespace=namespace, grpc_compression=GrpcCompression.NONE)
        except RuntimeError as error:
            if "not healthy yet" not in str(error):
                raise
        await asyncio.sleep(_RETRY_SECONDS)


def describe_rpc_error(error: RPCError, namespace: str) -> DurableError:
    """An error of a call to Temporal, in words."""
    if error.status == RPCStatusCode.NOT_FOUND and "namespace" in error.message.lower():
        return DurableError(f"Temporal has no namespace {namespace!r}. Create it, or name another one.")
    return DurableError(f"Temporal did not do it: {_first_line(error)} ({error.status.name.lower()}).")


def is_passing(error: RPCError) -> bool:
    """Whether Temporal only does not answer at the moment."""
    return error.status in _PASSING


def find_shared_store(where: Where) -> SharedStore:
    """The store of supervised sessions; raises `TypeError` for one that other processes cannot reach."""
    store = open_store(where)
    if isinstance(store, MemoryStore) or not isinstance(store, SharedStore):
        raise TypeError(
            f"Supervised sessions need a store that all workers can reach, such as PostgresStore(...), got {store!r}."
        )
    return store


def _find_reason(error: Exception) -> str:
    """Why a connection failed: the last words in what Temporal's library shows of its own errors."""
    found = _WORDS.findall(str(error))
    return found[-1].rstrip(".") if found else _first_line(error)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")
