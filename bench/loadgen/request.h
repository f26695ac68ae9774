/* Requests as compiled templates: text, and the places where a number or a cursor goes. */
#ifndef LOADGEN_REQUEST_H
#define LOADGEN_REQUEST_H

#include <stddef.h>
#include <stdint.h>

#define REQUEST_HEAD_BYTES_MAX 2048
#define REQUEST_PARTS_MAX 24

#define TOPIC_DIGITS 4 /* {topic}: 0000 .. 9999 */
#define KEY_DIGITS 10  /* {key}: 0000000000 ..; of one width, so that every head has one size */

enum part_kind { PART_TEXT, PART_TOPIC, PART_KEY, PART_LENGTH, PART_CURSOR };

struct part {
    enum part_kind kind;
    const char *text;
    uint32_t len;
};

struct request_template {
    struct part parts[REQUEST_PARTS_MAX];
    int count;
    char *source;
};

struct request_values {
    uint64_t topic, key, length;
    const char *cursor;
    uint32_t cursor_len;
};

/* Compiles text with {topic}, {key}, {length} and {cursor}; 0, or -1 if it has too many parts. */
int request_compile(struct request_template *t, const char *text);

/* Writes the head to out, which has REQUEST_HEAD_BYTES_MAX bytes; returns its length. */
size_t request_render(const struct request_template *t, const struct request_values *v, char *out);

#endif
