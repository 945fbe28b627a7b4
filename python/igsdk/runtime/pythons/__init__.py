# SPDX-License-Identifier: Apache-2.0
"""The Python interpreters of other processes: which they are and where they keep what.

``registry`` is the entry; ``discover`` finds an interpreter's file, ``offsets`` knows
its structures, ``lines`` reads the tables that say which line an instruction is of.
"""
