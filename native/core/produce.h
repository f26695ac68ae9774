/* produce: a produce call, as far as its head says, and the events that stand for a part of it. */
#ifndef BARCO_PRODUCE_H
#define BARCO_PRODUCE_H

#include "http/inflate.h"
#include "log/run.h"

#define TIMESTAMP_MAX (1LL << 62) /* microseconds; room for the deltas of a batch */

/* Lines with keys of their own are never handed over as such, but as cuts. */
enum content { CONTENT_EVENT, CONTENT_LINES, CONTENT_BATCH, CONTENT_CUT, CONTENT_KEYED };

/* What the body is of CloudEvents: data alone, in binary mode; an event or many of them, to be
 * taken apart as soon as it is here (broker/cloud.h). */
enum cloud { CLOUD_NONE, CLOUD_DATA, CLOUD_EVENT, CLOUD_BATCH };

/* A produce call as far as its head says. */
struct produce {
    struct topic *topic;
    uint8_t content;
    uint8_t coding; /* enum coding: of the whole body */
    uint8_t cloud;  /* enum cloud */
    bool has_key, key_field, has_producer, one_shot, minimal, no_forward, known_only;
    bool headed; /* has headers or no value: one event, which headed.c makes a cut of */
    bool no_value;
    bool loose; /* a batch that is not stored as it came, but gathered with other events */
    bool delayed; /* of a batch: each of its events until its own time */
    bool json;    /* the body's type says so */
    bool valid_only; /* of lines those that the topic's check refuses are left out */
    bool checked; /* its values were looked at */
    bool verified; /* of a cut: here, since it came, or it was made here */
    int64_t number; /* asked for, -1: by key */
    int64_t timestamp; /* 0: none was given; or TIME_ZERO */
    uint32_t key_len, producer_epoch;
    uint64_t producer_seq;
    int64_t producer_token, key_token;
    uint8_t producer_id[PRODUCER_ID_BYTES];
    uint32_t headers_len;
    const uint8_t *headers; /* as format/headers.h has them */
    const uint8_t *key; /* or, key_field, the member of each line that is its key */
};

#endif
