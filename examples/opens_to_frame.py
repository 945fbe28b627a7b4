# SPDX-License-Identifier: Apache-2.0
"""Which programs open files, for some seconds, as a data frame: opens_to_frame.py [TARGET] [S].

Needs a daemon such as `ig daemon`, and pip install 'igsdk[remote,data]'.
"""

import sys

import igsdk

target = sys.argv[1] if sys.argv[1:] else "unix:///var/run/ig/ig.socket"
seconds = float(sys.argv[2]) if sys.argv[2:] else 5
with igsdk.connect(target) as host, host.run("trace_open:latest", {"host": True}) as run:
    (opens,) = run.collect(seconds).values()
    frame = opens.to_pandas()
print(frame["proc.comm"].value_counts().head(10).to_string())
print({cause: count for cause, count in run.losses().items() if count} or "nothing was lost")
