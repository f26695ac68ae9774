/* replica: groups that somebody else has built, a leader or an earlier start. */
#ifndef BARCO_REPLICA_H
#define BARCO_REPLICA_H

#include "log/log.h"

enum foreign {
    FOREIGN_TAKEN,
    FOREIGN_WAIT,    /* no room now: again after something landed or a segment was added */
    FOREIGN_GAP,     /* not the group after the tail */
    FOREIGN_STRANGE, /* of another cluster, range, generation or session */
    FOREIGN_DAMAGED, /* a checksum is wrong, or what it says cannot be */
    FOREIGN_CLOSED   /* this replica does not follow, or was fenced */
};
/* Groups come from a leader from now on. */
void log_follow(struct log *log);
/* Takes one whole group as its leader sent it. */
enum foreign log_take(struct log *log, const uint8_t *group, size_t len);
/* Where its bytes may be put before it is taken, which then copies nothing. For as long as nothing
 * else is taken or built. NULL: there is no room. */
uint8_t *log_place(struct log *log, size_t len);
/* A start of this process would put all groups up to gseq in their places, whatever of them is
 * there: they may be written together, though their headers say what was stable before them. */
void log_kept(struct log *log, uint64_t gseq);
/* The shard's state becomes this one, and its slices those that it says (shard_adopt). Calls that
 * wait for a group, or for one to be committed, are lost, as when the log is fenced. */
int log_restore(struct log *log, const uint8_t *bytes, size_t len);
/* Recovery of a generation that was not sealed: its last segment, then that segment's groups. Each
 * is applied and indexed; a SNAPSHOT or GEN_START replaces the state, and says of which slices.
 * 0, or -1 malformed. */
void log_load_segment(struct log *log, uint32_t index, int fd, uint64_t capacity);
int log_load_group(struct log *log, const uint8_t *group, size_t len);

#endif
