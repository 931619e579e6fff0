"""A program that knows Shardlog by stubs alone: `python stranger.py DIRECTORY_OF_STUBS`.

It is told what to do in lines of JSON and answers each with another.  Messages are written as
protobuf's JSON, so nothing here knows what they mean.
"""

import json
import queue
import sys
import threading
from pathlib import Path

import grpc
from google.protobuf import json_format

sys.path.insert(0, sys.argv[1])

import log_pb2  # type: ignore[import-not-found]
import log_pb2_grpc  # type: ignore[import-not-found]

PATIENCE_S = 60


class Stream:
    """One call.  Its answers are taken as they come, unless it is idle."""

    def __init__(self):
        self.requests: queue.Queue = queue.Queue()
        self.answers: queue.Queue = queue.Queue()

    def begin(self, call, idle):
        self.call = call
        if not idle:
            threading.Thread(target=self.take, daemon=True).start()

    def take(self):
        try:
            for answer in self.call:
                told = json_format.MessageToDict(answer, preserving_proto_field_name=True)
                self.answers.put({"answer": told})
            self.answers.put({"end": "OK"})
        except grpc.RpcError as failure:
            self.answers.put({"end": failure.code().name})

    def asked(self):
        return iter(self.requests.get, None)


class Stranger:
    def __init__(self):
        self.channels = {}
        self.streams = {}

    def stub(self, address, tls):
        if address not in self.channels:
            if tls:
                parts = [Path(path).read_bytes() if path else None for path in tls]
                credentials = grpc.ssl_channel_credentials(*parts)
                self.channels[address] = grpc.secure_channel(address, credentials)
            else:
                self.channels[address] = grpc.insecure_channel(address)
        return log_pb2_grpc.LogStub(self.channels[address])

    def append(self, stream, address, tls=None):
        made = self.streams[stream] = Stream()
        made.begin(self.stub(address, tls).Append(made.asked()), idle=False)

    def send(self, stream, request):
        message = json_format.ParseDict(request, log_pb2.AppendRequest())
        self.streams[stream].requests.put(message)

    def finish(self, stream):
        self.streams[stream].requests.put(None)

    def read(self, stream, address, request, tls=None, idle=False):
        made = self.streams[stream] = Stream()
        message = json_format.ParseDict(request, log_pb2.ReadRequest())
        made.begin(self.stub(address, tls).Read(message), idle)

    def next(self, stream):
        return self.streams[stream].answers.get(timeout=PATIENCE_S)

    def rest(self, stream):
        """How many answers are left, and how the stream ends."""
        number = 0
        while "end" not in (told := self.next(stream)):
            number += 1
        return {"number": number, **told}

    def cancel(self, stream):
        self.streams[stream].call.cancel()

    def modules(self):
        return {"ours": [name for name in sys.modules if name.startswith("shardlog")]}


def main():
    stranger = Stranger()
    for line in sys.stdin:
        told = json.loads(line)
        answer = getattr(stranger, told.pop("do"))(**told)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
