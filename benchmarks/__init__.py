# SPDX-License-Identifier: Apache-2.0
"""Speed and cost, as ratios in one run with the floor beside them; see docs/benchmarks.md."""
