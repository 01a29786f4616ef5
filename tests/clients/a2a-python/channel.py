"""Channels of gRPC for script.py and script_03.py: plain text, with the bearer token at each call.

The SDKs leave channels to their users, and gRPC sends call credentials over TLS only: interceptors add the token.
"""

import os

import grpc


def with_token(details):
    token = ("authorization", f"Bearer {os.environ['ASP_TOKEN']}")
    return details._replace(metadata=grpc.aio.Metadata(*details.metadata, token))


# A channel takes an interceptor of two kinds for one of the first kind alone.
class UnaryCalls(grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, continuation, details, request):
        return await continuation(with_token(details), request)


class Streams(grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(self, continuation, details, request):
        return await continuation(with_token(details), request)


def open_channel(address):
    return grpc.aio.insecure_channel(address, interceptors=[UnaryCalls(), Streams()])
