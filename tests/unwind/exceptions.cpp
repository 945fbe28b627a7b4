// SPDX-License-Identifier: Apache-2.0
// Stacks of C++: in a handler, in a destructor while an exception passes, at its end.
#include "snapshot.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>

struct Guard {
    FRAME ~Guard()
    {
        if (armed) {
            snapshot();
            STAY;
        }
    }
    bool armed;
};

FRAME static void thrower(bool armed)
{
    Guard guard{armed};
    throw std::runtime_error("thrown");
}

FRAME static void caught()
{
    try {
        thrower(false);
    } catch (const std::exception &) {
        snapshot();
        STAY;
    }
}

FRAME static void passed()
{
    try {
        thrower(true);
    } catch (const std::exception &) {
        std::puts("caught");
    }
}

FRAME static void at_the_end()
{
    snapshot();
    std::_Exit(0);
}

FRAME static void uncaught() noexcept
{
    std::set_terminate(at_the_end);
    thrower(false);
    STAY;
}

int main(int count, char **arguments)
{
    const char *shape = count > 1 ? arguments[1] : "";
    if (!std::strcmp(shape, "caught"))
        caught();
    if (!std::strcmp(shape, "passed"))
        passed();
    if (!std::strcmp(shape, "uncaught"))
        uncaught();
}
