/* intake: what the other replicas of the shard send, on connections that they dialled.
 *
 *     u32 bytes of the message | u32 bytes of the group behind it | message | group
 *
 * The message is a msgpack map, or one of the two with a fixed layout (append_frame.h).
 *
 * Each frame goes to Python, which decides everything about the cluster. One case it leaves here:
 * a generation that is followed in steady state. Then the intake is armed with the leader's
 * connection and the way back; the next group of that generation is taken, and when it is stable
 * it is acknowledged, without a word to Python, which asks for the news before its next step.
 *
 * Any other frame disarms it: what comes before Python has decided anew takes Python's way. So
 * nothing is taken or acknowledged between the arrival of a PREPARE and the answer to it. */
#ifndef BARCO_INTAKE_H
#define BARCO_INTAKE_H

#include "core/append_frame.h"
#include "core/core.h"

/* The largest is a decided successor with two children: about 1 KiB. */
#define FRAME_MESSAGE_BYTES_MAX 65536u
/* With so many groups waiting for the disk a follower is behind: small ones are kept together
 * first, by Python (storage.kept). */
#define INTAKE_WAITING_MAX 16u
#define INTAKE_KEPT_BYTES_MAX 65536u

/* The frame that has not arrived whole. */
struct frames {
    uint32_t group_bytes_max;
    uint32_t filled; /* of head and message */
    uint32_t group_filled;
    uint32_t message_bytes, group_bytes;
    bool placed;    /* the group's bytes are put where the log will want them: only while the intake
                     * is armed for this connection */
    uint8_t *group; /* allocated, unless placed */
    uint8_t *start; /* head and message */
    uint32_t start_capacity;
};

struct frames *frames_new(uint32_t group_bytes_max);
void frames_free(struct frames *frames);

/* A connection that another replica of the shard has opened. */
struct replica_conn {
    struct conn conn;
    struct frames *frames;
};

static inline struct replica_conn *replica_of(const struct conn *conn)
{
    return (struct replica_conn *)conn;
}

extern const struct protocol replica_protocol;

/* Takes a connection that another replica of the shard has opened, and the session of its seal; no
 * seal: in plain. NULL without memory. */
struct conn *reactor_adopt_replica(struct reactor *reactor, int fd, uint32_t group_bytes_max,
                                   struct seal *seal);
/* False: the log does not stand at this group, or follows nobody. */
bool intake_arm(struct reactor *reactor, uint64_t conn_id, int answer_fd, struct seal *answer_seal,
                uint64_t gseq, uint32_t header_crc, uint64_t committed);
/* From here on nothing is taken or acknowledged. */
void intake_disarm(struct reactor *reactor);
/* Tells the leader, and readers here, of what is stable. False: Python has to. */
bool intake_landed(struct reactor *reactor);

#endif
