/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CUDA client that plays a script. It opens libcuda.so.1 by name at its first call.
 *
 *     play [-v] [-e 'SCRIPT' | FILE]        without either: the script on standard input
 *
 * One operation a line (or between semicolons); # begins a comment at a word's start.
 * "= N" at the end says which result is expected ("= missing": no such symbol). Any
 * function of the driver is an operation under its own name:
 *
 *     cuMemAlloc_v2 &p 1M = 0      &p output variable, numbers with K, M, G
 *     cuMemFree_v2 p               p, p+4096 the variable's value; @b the address of blob b
 *
 * Shorter names, structures and control are listed in verbs.c and driver.c. "thread N OP"
 * or "thread N { ... }" gives lines to a thread; each thread plays its own in order.
 *
 * Exit: 0, 3 if a result was not the expected one, 2 for a script that can't be read.
 */
#define _GNU_SOURCE
#include "play.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool verbose;
int failures;

static char *read_all(FILE *file)
{
    size_t size = 0, room = 1 << 16;
    char *text = malloc(room);

    for (;;) {
        size_t got = fread(text + size, 1, room - size - 1, file);

        size += got;
        if (!got)
            break;
        if (room - size < 2)
            text = realloc(text, room *= 2);
    }
    text[size] = 0;
    return text;
}

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "re");
    char *text;

    if (!file)
        give_up(0, "cannot read %s: %m", path);
    text = read_all(file);
    fclose(file);
    return text;
}

int main(int argc, char **argv)
{
    char *text = NULL;

    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "-v"))
            verbose = true;
        else if (!strcmp(argv[i], "-e") && i + 1 < argc)
            text = strdup(argv[++i]);
        else
            text = read_file(argv[i]);
    }
    run_program(parse_script(text ? text : read_all(stdin)));
    return failures ? 3 : 0;
}
