# SPDX-License-Identifier: Apache-2.0
"""Targets `k8s:`: the gadget pods of a cluster, each reached through the API server."""
