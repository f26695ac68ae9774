/* append_frame: the two messages of a group's usual way, as bytes. */
#ifndef BARCO_APPEND_FRAME_H
#define BARCO_APPEND_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An APPEND as barco.protocol.replication_codec writes it, field for field. */
struct append_message {
    int64_t token;
    uint64_t epoch, session, gseq, committed;
    uint32_t prev_crc, header_crc, bytes;
};
bool append_message_read(const uint8_t *message, size_t len, struct append_message *out);
/* Lengths of the message and of the group behind it. */
#define FRAME_HEAD_BYTES 8u
#define APPENDED_BYTES_MAX 80u
/* A whole frame with an APPENDED; returns its bytes. */
size_t appended_frame_write(int64_t token, uint64_t epoch, uint64_t gseq, uint64_t session,
                            uint8_t out[APPENDED_BYTES_MAX]);

#endif
