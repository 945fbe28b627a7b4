# SPDX-License-Identifier: Apache-2.0
"""A client of the gadget service: descriptions, packets to rows and columns, runs over gRPC."""
