"""How messages travel: frames for the data plane, gRPC for the control plane.

Codecs here know no sockets: bytes in, messages out, and the other way round.  `connection` and
`control` put them on the network.  Nothing here knows of storage or metadata, and no protobuf type
leaves `wire` and `control`.
"""
