# SPDX-License-Identifier: Apache-2.0
"""The same probes by bpftrace, which keeps live bytes in maps: what a person would write."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .support import FLOOR, TOTALS, Client, Variant, heading, interleave, say, show, variants

ROUNDS = 15
PAIRS = 2_000
LIVE = 1_000
# tracefs only in a mount namespace of its own
_SHELL = 'mount -t debugfs none /sys/kernel/debug && exec bpftrace -e "$0"'
_SCRIPT = """
BEGIN { printf("attached\\n"); }
uprobe:LIBRARY:cuMemAlloc_v2SITE { @out[tid] = arg0; @bytes[tid] = arg1; }
uretprobe:LIBRARY:cuMemAlloc_v2SITE /@out[tid] && retval == 0/ {
    @live[pid, *(uint64 *)@out[tid]] = @bytes[tid];
    @allocated[pid] += @bytes[tid];
    @calls[pid] += 1;
    delete(@out[tid]);
    delete(@bytes[tid]);
}
uprobe:LIBRARY:cuMemFree_v2SITE { @pointer[tid] = arg0; }
uretprobe:LIBRARY:cuMemFree_v2SITE /@pointer[tid] && retval == 0/ {
    @freed[pid] += @live[pid, @pointer[tid]];
    delete(@live[pid, @pointer[tid]]);
    delete(@pointer[tid]);
}
END { clear(@live); clear(@out); clear(@bytes); clear(@pointer); }
"""


def run(folder: Path) -> None:
    heading(f"beside bpftrace, totals only, {LIVE:,} live")
    if not shutil.which("bpftrace"):
        say("  not measured: bpftrace is not installed")
        return
    with variants(folder, {"floor": FLOOR, "igsdk": TOTALS}) as made, ExitStack() as stack:
        group = list(made.values())
        for name, site in (("bpftrace on the jump", "_jump"), ("bpftrace on the symbol", "")):
            client = stack.enter_context(Client(folder, name.replace(" ", "-")))
            stack.enter_context(_bpftrace(client.library, site))
            group.append(Variant(name, client, None))
        for variant in group:
            variant.client.ask(f"fill {LIVE}")
        interleave(group, ROUNDS, lambda variant: variant.client.ask(f"pairs {PAIRS} 1 1"))
        show(group, made["floor"], 1, "ns a pair")


@contextmanager
def _bpftrace(library: Path, site: str) -> Iterator[None]:
    script = _SCRIPT.replace("LIBRARY", str(library)).replace("SITE", site)
    with subprocess.Popen(
        ["unshare", "-m", "sh", "-c", _SHELL, script],
        env={**os.environ, "BPFTRACE_MAP_KEYS_MAX": "262144"},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        if not any("attached" in line for line in process.stdout):
            raise RuntimeError("bpftrace did not attach")
        yield
        process.send_signal(signal.SIGINT)
        # it takes its probes off one by one
        counts = [line.strip() for line in process.stdout.read().splitlines() if "@calls" in line]
        say(f"  bpftrace ended: {' '.join(counts)}")
