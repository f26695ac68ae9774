/* refusals: what was refused to whom, for the log: kept here until the upper layer takes it, once a
 * second. Some of each user's are kept whole, the others are counted, so that a flood costs neither
 * the log nor the upper layer anything. Never a token, nor a query or a body. */
#ifndef BARCO_REFUSALS_H
#define BARCO_REFUSALS_H

#include "core/client.h"
#include "http/given_id.h"

#define REFUSALS_KEPT 100u       /* of all users, until they are taken */
#define REFUSALS_KEPT_OF_ONE 20u /* a flood of one user leaves room for others */
#define REFUSAL_PATH_BYTES 200u
#define REFUSAL_METHOD_BYTES 16u
#define REFUSAL_FROM_BYTES 46u /* an address as text */
#define NO_USER UINT32_MAX     /* it was not shown who asks */

struct refusal {
    int64_t wall_us;
    const char *why; /* the problem's type */
    uint32_t user;   /* the number in the table of users, or NO_USER */
    uint16_t status;
    uint8_t method_len, path_len;
    char method[REFUSAL_METHOD_BYTES], path[REFUSAL_PATH_BYTES];
    char from[REFUSAL_FROM_BYTES]; /* the client's address; "": none that is known */
    char id[GIVEN_ID_BYTES_MAX + 1]; /* of the request; "": there was no memory for one */
};

struct tally {
    uint32_t kept;
    uint64_t more; /* that were only counted */
};

struct refusals {
    uint32_t count, users;
    bool any;              /* since they were taken last */
    struct tally *tallies; /* by user, and of NO_USER at the end */
    struct refusal kept[REFUSALS_KEPT];
};

/* There are so many users from now on: what was refused under other numbers is forgotten, so it is
 * taken before. False: there is no memory, and nothing has changed. */
bool refusals_of(struct reactor *reactor, uint32_t users);
void refusals_free(struct reactor *reactor);
/* Ids of requests begin here. False: there is nothing random. */
bool ids_begin(struct reactor *reactor);
/* The request is called what its client calls it, if it calls it anything. */
void id_given(struct slot *slot, const struct http1_request *head);
/* The id that answer and line have: given, or made now. NULL: there is no memory for one. */
const char *id_of(struct reactor *reactor, struct slot *slot);
/* Whether an answer of that status refuses what somebody has no right to, or too much of. */
static inline bool is_refusal(uint16_t status)
{
    return status == 401 || status == 403 || status == 429;
}

/* Notes that this was refused. */
void refusals_note(struct conn *conn, struct slot *slot, const struct http1_slice *method,
                   const struct http1_slice *path, uint32_t user, uint16_t status,
                   const char *why);
/* Notes a refused produce by its topic: its head is gone. */
void refusals_note_produce(struct conn *conn, struct slot *slot, const struct topic *topic,
                           uint32_t user, uint16_t status, const char *why);
/* All of it has been taken. */
void refusals_taken(struct reactor *reactor);

#endif
