/* cloud: bodies of CloudEvents made into what clients of barco send: one event with headers, or a
 * batch. Whoever reads them sees no difference between binary and structured mode. */
#ifndef BARCO_CLOUD_H
#define BARCO_CLOUD_H

#include "core/core.h"
#include "core/produce.h"

/* Reads the body that is here, before anything of it is stored. Key and time of the events are
 * those of partitionkey and time, where the request says no other and the topic takes such times.
 * *owned is the body if it lies in one, and becomes the one that it is made; *bytes and *len lead
 * into it. 0, or the problem, and then the detail of its answer. Until the request is over
 * what produce has points into scratch memory. */
uint16_t cloud_read(struct reactor *reactor, struct produce *produce, struct body **owned,
                    const uint8_t **bytes, size_t *len, uint64_t *detail);
/* Of a detail: which event of the body it is, from 1, and what is wrong with it. */
uint64_t cloud_flaw_event(uint64_t detail);
const char *cloud_flaw_text(uint64_t detail);

#endif
