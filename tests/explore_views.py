"""What can be seen of a world from outside, to compare explorations with and without reductions.

A view is the record and, of each member that counts, its epoch, its role as far as the epoch still
is the record's, and its log; and beside it the chain of all that was ever committed.  Names that
can stand for each other are brought in one order.  An exploration *covers* another one if all that
is seen in the other is seen in it, with at least as much committed: then whatever goes wrong in the
other goes wrong in it, too.
"""

from itertools import permutations, product

from shardlog.protocol.states import Role


class Seen:
    """What an exploration saw: for each view, the chains seen with it."""

    def __init__(self, named, reduction, states_max=100_000):
        self.world, start = named.begin(reduction)
        self.views, self.logs = {}, {}
        representative = self.world.symmetry.representative
        waiting = [representative(start)]
        known = set(waiting)
        while waiting:
            state = waiting.pop()
            self._see(state)
            for made in map(representative, self.world.successors(state)):
                if made not in known:
                    known.add(made)
                    waiting.append(made)
            assert len(known) <= states_max, f"more than {states_max} states"
        self.states = len(known)

    def _see(self, state):
        chain = _chain(self.world, state)
        view = _view(self.world, state)
        self.views.setdefault(view, set()).add(chain)
        *record, nodes = view
        logs = (*record, tuple((name, log) for name, _, _, log in nodes))
        self.logs.setdefault(logs, set()).add(chain)


def uncovered(all_seen, reduced):
    """What is seen in one exploration and not in the other, or there with less committed."""
    return [
        (view, chain)
        for view, chains in all_seen.items()
        for chain in chains
        if not any(_reaches(other, chain) for other in reduced.get(view, ()))
    ]


def _reaches(chain, other):
    """Everything in the other chain is in this one, and was committed no later."""
    return len(chain) >= len(other) and all(
        ours[:2] == theirs[:2] and ours[2] <= theirs[2]
        for ours, theirs in zip(chain, other, strict=False)
    )


def _chain(world, state):
    chain = world.known.chains.values[state[world.at_chain]]
    return tuple((link.base, link.checksum, link.committed_in) for link in chain)


def _view(world, state):
    return min(_renamed(world, state, names) for names in _exchanges(world.bounds.interchangeable))


def _exchanges(groups):
    for orders in product(*(permutations(group) for group in groups)):
        yield {
            old: new
            for group, order in zip(groups, orders, strict=True)
            for old, new in zip(group, order, strict=True)
        }


def _renamed(world, state, names):
    record = world.known.stores.values[state[world.at_store]].record
    members = {*record.ensemble, *record.final_ensemble}
    replicas = [world.known.replicas.values[world.machine(state, at)] for at in range(world.nodes)]
    nodes = []
    for replica in replicas:
        if replica.member in members:
            nodes.append((names.get(replica.node, replica.node), *_seen_of(replica, record)))
    return (
        record.epoch,
        str(record.phase),
        *(_named(each, names) for each in (record.ensemble, record.final_ensemble)),
        tuple(sorted(nodes)),
    )


def _named(ensemble, names):
    return tuple(sorted(names.get(member.node, member.node) for member in ensemble))


def _seen_of(replica, record):
    leads = replica.lead is not None and replica.lead.serving
    role = "leads" if leads else "" if replica.role is Role.LEADER else str(replica.role)
    log = tuple(header.checksum for header in replica.log.headers)
    return replica.epoch, role if replica.epoch >= record.epoch else "", log
