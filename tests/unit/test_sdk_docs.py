# SPDX-License-Identifier: Apache-2.0
"""What docs/sdk.md shows is Python that runs."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.gadget_server import serving_process

import igsdk

DOCS = Path(__file__).parents[2] / "docs" / "sdk.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", DOCS.read_text(), re.MULTILINE | re.DOTALL)


def shown(words: str) -> str:
    """The one block that has these words."""
    found: list[str] = [block for block in BLOCKS if words in block]
    assert len(found) == 1
    return found[0]


def test_all_of_it_is_python() -> None:
    assert len(BLOCKS) >= 7
    for block in BLOCKS:
        # what goes on inside a `with` of the block before it
        inside = block.startswith("    ")
        compile("if True:\n" + block if inside else block, str(DOCS), "exec")


def test_the_ten_lines(tmp_path: Path, capsys: Any) -> None:
    """Against a server of ours: other fields and another name of the data source."""
    pytest.importorskip("pandas", reason="pandas is not installed: pip install 'igsdk[data]'")
    code = (
        shown("value_counts()").replace("collect(10)", "collect(0.3)").replace('"open"', '"opens"')
    )
    code = code.replace('opens["error"] == "ENOENT"', 'opens["pid"] == 3').replace("fname", "path")
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    with serving_process(tmp_path / "socket") as (_, target):
        exec(code.replace("unix:///var/run/ig/ig.socket", target), {})
    out = capsys.readouterr().out
    assert "/proc/3" in out
    assert "'packets': 0" in out


def test_rows_in_asyncio(tmp_path: Path) -> None:
    namespace: dict[str, Any] = {"asyncio": asyncio}
    exec(shown("async def opens"), namespace)
    seen: list[object] = []

    async def others() -> None:
        for _ in range(5):
            await asyncio.sleep(0.01)
            seen.append("other")

    async def read(target: str) -> None:
        task = asyncio.create_task(others())
        with igsdk.connect(target) as host:
            async for row in namespace["opens"](host):
                seen.append(row["pid"])
                if row["pid"] == 10:
                    break
        await task

    with serving_process(tmp_path / "socket") as (_, target):
        asyncio.run(read(target))
    assert [one for one in seen if one != "other"] == list(range(1, 11))
    assert seen.index("other") < seen.index(10)
