/* output: pieces of what a connection sends: own bytes, those of the upper layer, or a source's. */
#ifndef BARCO_OUTPUT_H
#define BARCO_OUTPUT_H

#include "loop/conn.h"

/* A piece of output: own bytes, or foreign ones that are released after sending. */
struct output {
    struct output *next;
    const uint8_t *bytes;
    uint32_t len, sent, capacity;
    void (*release)(void *owner);
    void *owner;
    struct source *source; /* then bytes is NULL, and own is for its message */
    uint8_t own[];
};

void conn_write(struct conn *conn, const void *bytes, size_t len);
void conn_write_foreign(struct output **first, struct output **last, const void *bytes, size_t len,
                        void (*release)(void *), void *owner);
/* Adds bytes that may be moved while they wait to be sent. */
void conn_write_source(struct output **first, struct output **last, struct source *source,
                       void (*release)(void *), void *owner);
struct output *output_new(size_t capacity);
void outputs_free(struct output *output);
/* Bytes of the upper layer's answers that wait to be sent, of all connections. */
uint64_t outputs_foreign_bytes(void);
/* Memory of those that wait to be sent from memory of our own. */
uint64_t outputs_own_bytes(void);

#endif
