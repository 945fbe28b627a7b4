# SPDX-License-Identifier: Apache-2.0
"""Code generated from our own .proto files by ``build/generate_proto.py``."""
