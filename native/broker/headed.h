/* headed: one event that has headers or no value, as a cut of one event. */
#ifndef BARCO_HEADED_H
#define BARCO_HEADED_H

#include "core/core.h"
#include "core/produce.h"

/* 0, or the problem. *cut is to be released. */
uint16_t headed_cut(struct reactor *reactor, const struct produce *produce, const uint8_t *bytes,
                    size_t len, struct body **cut);

#endif
