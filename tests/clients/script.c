/* SPDX-License-Identifier: Apache-2.0 */
/* From text to operations. */
#define _GNU_SOURCE
#include "play.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct variable *variables;
static char *cursor;
static int line_number;

void give_up(int line, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fprintf(stderr, "play: line %d: ", line);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    exit(2);
}

struct variable *variable_of(const char *name)
{
    struct variable *variable = variables;

    while (variable && strcmp(variable->name, name))
        variable = variable->next;
    if (variable)
        return variable;
    variable = calloc(1, sizeof(*variable));
    variable->name = strdup(name);
    variable->next = variables;
    variables = variable;
    return variable;
}

static uint64_t parse_number(const char *word)
{
    char *end;
    uint64_t number = strtoull(word, &end, 0);
    const char *units = "KMGT", *unit = *end ? strchr(units, *end) : NULL;

    if (unit) {
        number <<= 10 * (unit - units + 1);
        end++;
    }
    if (*end || end == word)
        give_up(line_number, "not a number: %s", word);
    return number;
}

static struct argument parse_value(const char *word)
{
    struct argument argument = {ARG_VALUE, NULL, 0};
    char name[64];
    const char *plus = strchr(word, '+');

    if (isdigit((unsigned char)*word) || *word == '-')
        return (struct argument){ARG_NUMBER, NULL, parse_number(word)};
    if (!strcmp(word, "#"))
        return (struct argument){ARG_COUNTER, NULL, 0};
    snprintf(name, sizeof(name), "%.*s", plus ? (int)(plus - word) : 63, word);
    argument.variable = variable_of(name);
    argument.number = plus ? parse_number(plus + 1) : 0;
    return argument;
}

/* `kind`: '*' a value as the word says, '&' an output variable, '@' a blob. */
struct argument parse_argument(const char *word, char kind)
{
    if (kind == '*' && (*word == '&' || *word == '@'))
        kind = *word;
    word += *word == '&' || *word == '@';
    if (kind == '&')
        return (struct argument){ARG_OUTPUT, variable_of(word), 0};
    if (kind == '@')
        return (struct argument){ARG_BLOB, variable_of(word), 0};
    return parse_value(word);
}

static bool at_end_of_line(void)
{
    while (*cursor == ' ' || *cursor == '\t' || *cursor == '\r')
        cursor++;
    if (*cursor == '#' && !isspace((unsigned char)cursor[1]))
        return *cursor == 0; /* "#name" is no comment */
    if (*cursor == '#' && (cursor[1] == ' ' || cursor[1] == '\t'))
        cursor += strcspn(cursor, "\n");
    return *cursor == 0 || *cursor == '\n' || *cursor == ';';
}

static char *next_word(void)
{
    char *word;

    if (at_end_of_line())
        return NULL;
    if (*cursor == '"') {
        word = ++cursor;
        cursor += strcspn(cursor, "\"");
    } else {
        word = cursor;
        cursor += strcspn(cursor, " \t\r\n;");
    }
    word = strndup(word, cursor - word);
    cursor += *cursor == '"';
    return word;
}

/* The line's end, unless a block begins there. */
static void end_line(void)
{
    if (*cursor == '\n')
        line_number++;
    if (*cursor)
        cursor++;
}

static void take_expected(struct op *op)
{
    const char *last = op->n_words >= 2 ? op->words[op->n_words - 1] : "";

    op->expected = NOT_EXPECTED;
    if (op->n_words < 3 || strcmp(op->words[op->n_words - 2], "="))
        return;
    op->expected = strcmp(last, "missing") ? strtol(last, NULL, 0) : MISSING;
    op->n_words -= 2;
}

static void take_thread(struct op *op)
{
    op->thread = -1;
    if (op->n_words < 2 || strcmp(op->words[0], "thread"))
        return;
    op->thread = atoi(op->words[1]);
    op->n_words -= 2;
    memmove(op->words, op->words + 2, op->n_words * sizeof(op->words[0]));
}

static struct op *parse_block(bool nested);

static struct op *parse_line(bool *closed)
{
    struct op *op = calloc(1, sizeof(*op));
    char *word;
    bool opens = false, ended = false;

    op->line = line_number;
    while ((word = next_word())) {
        if (!strcmp(word, "}")) {
            *closed = !op->n_words;
            ended = op->n_words; /* the brace is read again, alone */
            cursor -= ended;
            break;
        }
        if (!strcmp(word, "{")) {
            opens = true;
            break;
        }
        if (op->n_words == MAX_WORDS)
            give_up(op->line, "too many words");
        op->words[op->n_words++] = word;
    }
    if (!opens && !ended && !*closed)
        end_line();
    take_expected(op);
    take_thread(op);
    if (opens)
        op->body = parse_block(true);
    return op;
}

static struct op *parse_block(bool nested)
{
    struct op *first = NULL, **last = &first;
    int began = line_number;

    while (*cursor) {
        bool closed = false;
        struct op *op = parse_line(&closed);

        if (closed && nested)
            return first;
        if (closed)
            give_up(line_number, "} without {");
        if (!op->n_words && !op->body)
            continue;
        if (op->n_words)
            bind_op(op);
        *last = op;
        last = &op->next;
    }
    if (nested)
        give_up(began, "{ without }");
    return first;
}

struct op *parse_script(char *text)
{
    cursor = text;
    line_number = 1;
    return parse_block(false);
}
