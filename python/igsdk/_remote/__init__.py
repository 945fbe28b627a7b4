# SPDX-License-Identifier: Apache-2.0
"""``profile_cuda_memory`` on other machines: rows from there, ledger and profile here."""
