# SPDX-License-Identifier: Apache-2.0
"""What loads the probes and produces rows: local now, remote later."""
