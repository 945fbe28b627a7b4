# SPDX-License-Identifier: Apache-2.0
"""Asserts in the helpers show their values too."""

import pytest

pytest.register_assert_rewrite("tests.support", "tests.unit.profile_cases")
