/* SPDX-License-Identifier: Apache-2.0 */
/* Structures that calls take by address, built from words of the script. */
#include "play.h"

#include <stdlib.h>
#include <string.h>

/*
 * One letter a member: w 32 bits, q 64 bits from the script; a digit is a 32-bit constant;
 * l a location (device, host or numa, then its number); - 32 bits of zero.
 */
static const struct {
    const char *verb, *members;
    size_t bytes;
} structures[] = {
    {"prop", "11l", 32},       /* cuMemCreate */
    {"poolprops", "11l", 88},  /* cuMemPoolCreate */
    {"location", "l", 8},      /* cuMemGetMemPool */
    {"desc", "qqww", 24},      /* array: width height format channels */
    {"desc3", "qqqwww", 40},   /* array3, mip: width height depth format channels flags */
    {"desc1", "wwww", 16},     /* array1: as desc, 32 bits */
    {"desc31", "wwwwww", 24},  /* array31 */
    {"graphnode", "11l", 120}, /* cuGraphAddMemAllocNode; its size: see below */
    {"nodeparams", "w", 256},  /* cuGraphAddNode: type, and the size where it allocates */
};

static uint32_t location_type(const char *word, int line)
{
    static const char *const names[] = {"none", "device", "host", "numa"};

    for (uint32_t i = 0; i < 4; i++)
        if (!strcmp(names[i], word))
            return i;
    give_up(line, "not a location: %s", word);
}

static char *put(char *at, uint64_t value, size_t bytes)
{
    memcpy(at, &value, bytes);
    return at + bytes;
}

static uint64_t word_value(struct run *run, struct op *op, int word)
{
    struct argument argument;

    if (word >= op->n_words)
        give_up(op->line, "%s: an argument is missing", op->words[0]);
    argument = parse_argument(op->words[word], '*');
    return value_of(run, &argument);
}

static void build(struct run *run, struct op *op, const char *members, char *at)
{
    int word = 2;

    for (; *members; members++) {
        if (*members == 'q')
            at = put(at, word_value(run, op, word++), 8);
        else if (*members == 'w')
            at = put(at, word_value(run, op, word++), 4);
        else if (*members == 'l') {
            at = put(at, location_type(op->words[word], op->line), 4);
            at = put(at, word_value(run, op, word + 1), 4);
        } else
            at = put(at, *members - '0', 4);
    }
}

/* STRUCTURE NAME MEMBERS... makes the blob NAME; "blob NAME BYTES" one of zeros. */
int verb_structure(struct run *run, struct op *op)
{
    struct variable *variable = variable_of(op->words[1]);

    if (!strcmp(op->words[0], "blob")) {
        variable->blob = calloc(1, word_value(run, op, 2));
        return 0;
    }
    for (size_t i = 0; i < sizeof(structures) / sizeof(structures[0]); i++)
        if (!strcmp(structures[i].verb, op->words[0])) {
            variable->blob = calloc(1, structures[i].bytes);
            build(run, op, structures[i].members, variable->blob);
        }
    if (!strcmp(op->words[0], "graphnode"))
        put((char *)variable->blob + 104, word_value(run, op, 4), 8);
    if (!strcmp(op->words[0], "nodeparams"))
        put((char *)variable->blob + 120, word_value(run, op, 3), 8);
    return 0;
}
