/* answer: answers as bytes. */
#ifndef BARCO_ANSWER_H
#define BARCO_ANSWER_H

#include "core/client.h"

/* Renders a slot whose turn has come. */
void answer_render(struct conn *conn, struct slot *slot);
/* Its HTTP status, the type that documents have, for ever, and what it says. */
uint16_t answer_status(uint16_t problem);
const char *answer_type(uint16_t problem);
const char *answer_title(uint16_t problem);
/* Where what a slot asked for is stored, as its answer would have it: JSON, to be freed. NULL: no
 * memory for it. */
uint8_t *answer_stored(const struct reactor *reactor, const struct slot *slot, uint32_t *len);
/* The problem as a whole response, after which the connection ends. The length. */
size_t answer_refusal(const struct reactor *reactor, uint16_t problem, char *out, size_t capacity);

#endif
