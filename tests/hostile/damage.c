/* SPDX-License-Identifier: Apache-2.0 */
/* A call of the driver while some memory of the process is not what it should be. */
#include <stddef.h>
#include <string.h>

#define MOST 8192

int cuMemAlloc_v2(unsigned long long *, size_t);
int cuMemFree_v2(unsigned long long);

int damaged(void *where, const void *damage, size_t size, size_t bytes)
{
    static unsigned char good[MOST];
    unsigned long long pointer;
    int result;

    if (size > MOST)
        return -1;
    if (size) {
        memcpy(good, where, size);
        memcpy(where, damage, size);
    }
    result = cuMemAlloc_v2(&pointer, bytes);
    if (size)
        memcpy(where, good, size);
    return result ? result : cuMemFree_v2(pointer);
}
