/* keyed_runs: lines with keys of their own, sorted by slice; each slice's share as a run, or as a
 * batch for the process that leads it. */
#ifndef BARCO_KEYED_RUNS_H
#define BARCO_KEYED_RUNS_H

#include "core/core.h"
#include "core/produce.h"
#include "format/keyed.h"

/* The lines of one slice: order[first, first + count). */
struct keyed_share {
    uint32_t number, first, count;
    uint32_t keys_bytes, vals_bytes, hdrs_bytes;
    bool keyed; /* any of them */
    bool plain; /* none has headers, each a value */
};

/* One body, read and sorted. All of it is in the reactor's scratch memory. */
struct keyed_body {
    struct body *owner; /* of the bytes: runs point into it */
    const uint8_t *bytes;
    const struct keyed_line *lines;
    const uint32_t *order;
    struct keyed_share *shares; /* in the order of the ring */
    uint32_t share_count;
    int64_t timestamp; /* the one of all lines that is the furthest off; 0: they have none */
    bool delayed;      /* it is when they are due */
};

/* Reads a body, which it changes. Lines without a key are for keyless_slice. 0, or the problem:
 * nothing of it is stored yet. */
uint16_t keyed_examine(struct reactor *reactor, const struct produce *produce,
                       uint32_t keyless_slice, uint8_t *bytes, size_t len, struct keyed_body *out,
                       uint64_t *detail);
/* A share of a slice that is led here. 0, or the problem. */
uint16_t keyed_run(struct reactor *reactor, const struct produce *produce,
                   const struct keyed_body *body, const struct keyed_share *share,
                   struct waiter waiter, uint64_t *detail);
/* A share as a batch that is not compressed, as batch_cut() makes them. NULL without memory. */
struct body *keyed_cut(struct reactor *reactor, const struct keyed_body *body,
                       const struct keyed_share *share);
/* What is told of a flawed line: its number and what is wrong with it, from a detail. */
uint64_t keyed_flaw_line(uint64_t detail);
const char *keyed_flaw_text(uint64_t detail);

#endif
