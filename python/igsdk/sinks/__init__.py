# SPDX-License-Identifier: Apache-2.0
"""Where profiles go on to: servers that keep them."""
