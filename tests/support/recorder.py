# SPDX-License-Identifier: Apache-2.0
"""A recorder in a process of its own, for tests that kill it.

    python -m tests.support.recorder LINK-MODE LIBCUDA COMMAND

Says "on" when the probes are there and, when its input ends, stops and says "off".
"""

from __future__ import annotations

import sys

import igsdk


def main() -> None:
    mode, libcuda, command = sys.argv[1:]
    with igsdk.connect("local:") as gpu:
        run = gpu.profile_cuda_memory(command=command, settings={"link_mode": int(mode)})
        with run:
            run._session.libraries.admit_path(libcuda)
            print("on", flush=True)
            sys.stdin.read()
        run.close()
    print("off", flush=True)


if __name__ == "__main__":
    main()
