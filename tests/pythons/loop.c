// SPDX-License-Identifier: Apache-2.0
// The same allocation from C, as often as asked for; each is given back.

#include <stddef.h>
#include <stdint.h>

typedef int (*allocate_fn)(uint64_t *address, size_t bytes);
typedef int (*free_fn)(uint64_t address);

long allocate_many(allocate_fn allocate, free_fn give_back, long times)
{
	uint64_t address = 0;
	long refused = 0;

	for (long i = 0; i < times; i++) {
		refused += allocate(&address, 4096) != 0;
		refused += give_back(address) != 0;
	}
	return refused;
}
