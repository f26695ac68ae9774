/* group_build: runs become the chunks of a group. */
#ifndef BARCO_GROUP_BUILD_H
#define BARCO_GROUP_BUILD_H

#include "log/log_state.h"

struct group_builder *builder_new(int acceleration);
void builder_free(struct group_builder *builder);
/* Upper bound of what the run adds to a group. */
size_t run_bound(const struct run *run);
/* Encodes the runs' chunks to out, assigns offsets and index entries. Returns body bytes and adds
 * to *chunks. body_pos: log position of out. */
size_t builder_encode(struct group_builder *builder, struct log *log, struct run *runs,
                      uint8_t *out, uint64_t body_pos, int64_t wall_us, uint32_t *chunks);

#endif
