# SPDX-License-Identifier: Apache-2.0
"""Which of several runs of the gadget on one machine count: each call once, and none lost.

A *feed* is what one target of ours sends. On one boot of a machine it may have several
epochs: where the stream broke, Inspektor Gadget ended the gadget and starts it anew, with
totals from zero. Those follow one another, so all of them count. Two feeds of one boot saw
the same calls (two URLs of one daemon, or two runtimes on one machine), so one counts: the
agent's before Inspektor Gadget's, then one that was not started anew and so saw all that the
other one missed, then the one that began earlier. Feeds with an epoch in common are one
daemon's, so they are one.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Chain:
    """The epochs of one daemon on one boot, in the order of their time.

    Attributes:
        nodes: the targets that sent them.
        ours: whether the agent did; its rows go before those of Inspektor Gadget.
    """

    epochs: list[int]
    nodes: set[str]
    ours: bool

    @property
    def rank(self) -> tuple[bool, int, int]:
        return (not self.ours, len(self.epochs), self.epochs[0])


@dataclass
class Feeds:
    """All chains by boot, as rows come in."""

    _chains: dict[int, list[Chain]] = field(default_factory=dict)

    def see(self, node: str, boot: int, epoch: int, ours: bool) -> bool:
        """Notes where rows come from; returns whether that was news."""
        chains = self._chains.setdefault(boot, [])
        mine = [chain for chain in chains if node in chain.nodes or epoch in chain.epochs]
        known = len(mine) == 1 and node in mine[0].nodes and epoch in mine[0].epochs
        if known and mine[0].ours >= ours:
            return False
        joined = Chain(
            epochs=sorted({epoch, *(one for chain in mine for one in chain.epochs)}),
            nodes={node}.union(*(chain.nodes for chain in mine)),
            ours=ours or any(chain.ours for chain in mine),
        )
        chains[:] = [chain for chain in chains if chain not in mine] + [joined]
        return True

    def chosen(self) -> dict[int, Chain]:
        """The chain that counts, by boot."""
        return {
            boot: min(chains, key=lambda chain: chain.rank)
            for boot, chains in self._chains.items()
            if chains
        }

    def counts(self, boot: int, epoch: int) -> bool:
        """Whether rows of this epoch are in the sums."""
        chains = self._chains.get(boot)
        return bool(chains) and epoch in min(chains or (), key=lambda chain: chain.rank).epochs

    def all(self) -> list[Chain]:
        """Every chain, those that do not count too."""
        return [chain for chains in self._chains.values() for chain in chains]

    def left_out(self) -> list[tuple[Chain, Chain]]:
        """Chains that do not count, each with the one that does in its place."""
        chosen = self.chosen()
        return [
            (chain, chosen[boot])
            for boot, chains in self._chains.items()
            for chain in chains
            if chain is not chosen[boot]
        ]
