# SPDX-License-Identifier: Apache-2.0
"""The node's daemon: one run of this machine's runtime, served to many clients."""
