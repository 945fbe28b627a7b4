# SPDX-License-Identifier: Apache-2.0
"""Gadget images: building, checking, pushing, reading and signing them.

The contract is Inspektor Gadget's: which documents an image consists of, what names in
a BPF object mean, and what gadget.yaml may say about it.
"""
