# SPDX-License-Identifier: Apache-2.0
"""Watches a service for a while, then pushes what it holds on the GPU to a Pyroscope.

sudo python examples/push_service.py PID http://127.0.0.1:4040 30
"""

import sys
import time

import igsdk

pid, url, seconds = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
with igsdk.connect("local:") as gpu, gpu.profile_cuda_memory(pid=pid) as run:
    time.sleep(seconds)
    profile = run.profile()
profile.push(url, labels={"env": "test"})
print(profile.total(), "bytes in use; by function:")
for row in profile.shown().top(5):
    print(f"{row.total:>16} {row.name}")
