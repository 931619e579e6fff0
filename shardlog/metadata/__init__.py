"""Versioned records with compare-and-swap and watch: where coordinators keep the truth.

`store` is the interface and what it promises; `memory` and `sqlite` keep the promises, and one
conformance suite holds both to them.  Nothing is imported here, so that the simulator may take
`memory` without the disk that comes with `sqlite`.
"""
