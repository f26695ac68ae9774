/* Pieces of output: what waits to be sent, own bytes or those of the upper layer. */
#include "loop/output.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "loop/source.h"

#define OUTPUT_BYTES 8160
#define OUTPUTS_KEPT 256

static _Thread_local struct output *spare_outputs;
static _Thread_local unsigned spare_outputs_count;
static _Thread_local uint64_t foreign_bytes, own_bytes;

struct output *output_new(size_t capacity)
{
    struct output *output = spare_outputs;
    if (capacity <= OUTPUT_BYTES && output != NULL) {
        spare_outputs = output->next;
        spare_outputs_count--;
    } else {
        output = malloc(sizeof *output + (capacity > OUTPUT_BYTES ? capacity : OUTPUT_BYTES));
        if (output == NULL)
            return NULL;
        output->capacity = (uint32_t)(capacity > OUTPUT_BYTES ? capacity : OUTPUT_BYTES);
    }
    own_bytes += output->capacity;
    output->next = NULL;
    output->bytes = output->own;
    output->len = output->sent = 0;
    output->release = NULL;
    output->source = NULL;
    return output;
}

static void output_free(struct output *output)
{
    if (output->release != NULL)
        output->release(output->owner);
    own_bytes -= output->capacity;
    if (output->capacity == 0)
        foreign_bytes -= output->len;
    if (output->capacity == OUTPUT_BYTES && spare_outputs_count < OUTPUTS_KEPT) {
        output->next = spare_outputs;
        spare_outputs = output;
        spare_outputs_count++;
        return;
    }
    free(output);
}

void outputs_free(struct output *output)
{
    while (output != NULL) {
        struct output *next = output->next;
        output_free(output);
        output = next;
    }
}

static void chain(struct output **first, struct output **last, struct output *output)
{
    if (*last != NULL)
        (*last)->next = output;
    else
        *first = output;
    *last = output;
}

void conn_write_foreign(struct output **first, struct output **last, const void *bytes, size_t len,
                        void (*release)(void *), void *owner)
{
    struct output *output = malloc(sizeof *output);
    assert(output != NULL);
    *output = (struct output){.bytes = bytes, .len = (uint32_t)len, .release = release,
                              .owner = owner};
    foreign_bytes += len;
    chain(first, last, output);
}

void conn_write_source(struct output **first, struct output **last, struct source *source,
                       void (*release)(void *), void *owner)
{
    struct output *output = malloc(sizeof *output + source->message_bytes);
    assert(output != NULL);
    *output =
        (struct output){.len = source->len, .release = release, .owner = owner, .source = source};
    foreign_bytes += source->len;
    chain(first, last, output);
}

uint64_t outputs_foreign_bytes(void) { return foreign_bytes; }

uint64_t outputs_own_bytes(void) { return own_bytes; }

void conn_write(struct conn *conn, const void *bytes, size_t len)
{
    struct output *last = conn->out_last;
    /* The piece being sent may be read by the kernel at any time: nothing is added to it. */
    bool full = last == NULL || last->bytes != last->own || last->len + len > last->capacity ||
                (conn->sending && last == conn->out_first);
    if (full) {
        last = output_new(len);
        if (last == NULL) {
            conn_close(conn);
            return;
        }
        chain(&conn->out_first, &conn->out_last, last);
    }
    memcpy(last->own + last->len, bytes, len);
    last->len += (uint32_t)len;
    conn->out_bytes += len;
    if (conn->unsent != NULL)
        *conn->unsent += len;
    conn_mark_dirty(conn);
}
