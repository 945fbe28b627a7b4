# SPDX-License-Identifier: Apache-2.0
"""The gadget's image, in the local runtime and by Inspektor Gadget's rules."""

from __future__ import annotations

import time

from tests.kernels.machine import (
    RELEASE,
    Checks,
    balanced,
    check_balance,
    expected_modes,
    recording,
)
from tests.kernels.prepared import Prepared
from tests.kernels.python_stacks import check_python, name_of
from tests.support import gadgethost, simdriver
from tests.support.gadget_books import assert_booked
from tests.support.gadgethost import Gadget, Host, Row, hosting
from tests.support.switches import variables

#: how long rows of what has ended are sent, and how often those that do not change
QUICK = {"keep_ended_ms": 3000, "resend_ms": 1000}
WINDOW_S, ENDED_S = 4, 600
SLOWNESS = 20


def check_image(checks: Checks, driver: simdriver.Driver, given: Prepared, python: str) -> None:
    """The image's program in the local runtime, which has played all with its own."""
    few = given.scripts[-10:]
    mode = next(mode for mode in expected_modes() if mode != "session")
    name = f"image, {mode} links"
    with recording(mode, driver, given.image) as run:
        checks.do(f"{name}, bytes", lambda: check_balance(run, driver, few, f"image.{mode}"))
        checks.do(f"{name}, {name_of(python)}", lambda: check_python(run, driver, python))


def check_rules(
    checks: Checks, driver: simdriver.Driver, scripts: list[str], gadget: Gadget
) -> None:
    """The image by Inspektor Gadget's rules."""
    start = time.monotonic()
    gadgethost.slowness = SLOWNESS
    name = "image by Inspektor Gadget's rules"
    with hosting(driver, *quick(gadget), of=gadget, events_wanted="all") as host:
        pairs, missing = host.ready["attached"], host.ready["missing"]
        said = f"loaded and attached in {time.monotonic() - start:.0f} s, {len(pairs)} programs"
        checks.tell(f"{'FAILED' if missing else 'ok':6} {RELEASE} {name}: {said} {missing or ''}")
        checks.do(f"{name}, bytes", lambda: check_rows(host, driver, scripts))
        checks.do(f"{name}, sweep", lambda: check_sweep(host))


def quick(gadget: Gadget) -> list[str]:
    """Flags that make what the program does by the clock come soon."""
    known = variables(gadget.object.read_bytes())
    return [f"-set={name}={value}" for name, value in QUICK.items() if name in known]


def check_rows(host: Host, driver: simdriver.Driver, scripts: list[str]) -> str:
    said = balanced(driver, scripts, "rules", lambda books: assert_booked(host, books))
    events = host.rows("events")
    stacks = [row for row in host.latest("heap").values() if row["ustack_raw"].get("addresses")]
    assert events, "no event came"
    assert stacks, "no row has a stack"
    return f"{said}; {len(events)} events, {len(stacks)} rows with stacks"


def check_sweep(host: Host) -> str:
    """Rows are sent again although nobody calls; those of what has ended only for a while."""
    again = 0
    start = time.monotonic()
    for source in ("heap", "processes"):
        known: set[int] = set()
        while rows := rows_in(host, source, WINDOW_S):
            late = [row for row in rows if row["row"] in known]
            assert not any(changed(row) for row in late), "a change without a call"
            assert time.monotonic() < start + ENDED_S, f"rows of `{source}` never end"
            known |= {row["row"] for row in rows}
            again += len(late)
    assert again, "no row was sent again"
    return f"{again} rows came again, and none {time.monotonic() - start:.0f} s later"


def rows_in(host: Host, source: str, seconds: float) -> list[Row]:
    since = len(host.lines)
    time.sleep(seconds)
    host.drain()
    return host.rows(source, since)


def changed(row: Row) -> bool:
    return any(value for name, value in row.items() if name.startswith("mem_"))
