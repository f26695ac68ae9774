/* intake: what the other replicas of the shard send, on connections that they dialled.
 *
 *     u32 bytes of the message | u32 bytes of the group behind it | message (msgpack map) | group
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

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_HEAD_BYTES 8u
/* The largest is a decided successor with two children: about 1 KiB. */
#define FRAME_MESSAGE_BYTES_MAX 65536u
/* With so many groups waiting for the disk a follower is behind: small ones are kept together
 * first, by Python (storage.kept). */
#define INTAKE_WAITING_MAX 16u
#define INTAKE_KEPT_BYTES_MAX 65536u

struct conn;
struct reactor;

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

/* What was done since Python last asked. */
struct intake_news {
    bool any;
    uint64_t epoch, taken, stable, committed; /* 0: nothing new of it */
    uint32_t taken_crc, stable_crc;
};

struct intake {
    bool armed;
    uint64_t conn_id; /* the leader's connection */
    int answer_fd;    /* the connection to the leader: idle, and no byte of a frame half sent */
    uint64_t committed; /* as far as is known */
    struct intake_news news;
    uint64_t groups, sent_bytes; /* counters */
};

struct frames *frames_new(uint32_t group_bytes_max);
void frames_free(struct frames *frames);
void intake_input(struct conn *conn, const uint8_t *bytes, size_t len);
void intake_lost(struct conn *conn);
/* False: the log does not stand at this group, or follows nobody. */
bool intake_arm(struct reactor *reactor, uint64_t conn_id, int answer_fd, uint64_t gseq,
                uint32_t header_crc, uint64_t committed);
/* From here on nothing is taken or acknowledged. */
void intake_disarm(struct reactor *reactor);
/* Tells the leader, and readers here, of what is stable. False: Python has to. */
bool intake_landed(struct reactor *reactor);

/* An APPEND as barco.protocol.replication_codec writes it, field for field. */
struct append_message {
    int64_t token;
    uint64_t epoch, session, gseq, committed;
    uint32_t prev_crc, header_crc, bytes;
};
bool append_message_read(const uint8_t *message, size_t len, struct append_message *out);
#define APPENDED_BYTES_MAX 80u
/* A whole frame with an APPENDED; returns its bytes. */
size_t appended_frame_write(int64_t token, uint64_t epoch, uint64_t gseq, uint64_t session,
                            uint8_t out[APPENDED_BYTES_MAX]);

#endif
