/* access: who sends a request, whether that user may produce to a topic, and how much in all.
 *
 * The users are one table, which the upper layer hands over whole. A connection keeps what it was
 * found to be with the number of that table: so the next request costs a comparison, and another
 * table is another look. How many connections a user has goes on from one to the next. Nothing is
 * done where no table is asked for. */
#ifndef BARCO_ACCESS_H
#define BARCO_ACCESS_H

#include "core/client.h"

#define ACCESS_HASH_BYTES 32u
#define ACCESS_TABLE_BYTES_MAX (1u << 20) /* twice what users may take as events, and some */
#define ACCESS_RATE_MAX (1ull << 40)     /* of a quota */
#define ACCESS_KNOWN_TOPICS 1u           /* a produce makes no topic */
#define ACCESS_DEBT_SECONDS 3600u        /* more is forgiven: so long at most somebody waits */

/* A table as bytes, little-endian: for each token, in the order of the hashes, its SHA-256, the
 * SHA-256 of the user's name, uint16 the user's number (less than there are entries), uint64
 * requests a second and uint64 bytes a second, uint32 connections (0: without end), uint8
 * ACCESS_KNOWN_TOPICS or 0, uint16 how many patterns of topics follow, then each as a byte of
 * length and so many characters, with a '*' at the end where it is a beginning. Copied. NULL: none
 * has been heard of yet, everybody is told to come back. False: it is malformed, or no memory. */
bool access_set(struct reactor *reactor, const uint8_t *table, size_t len);
void access_free(struct reactor *reactor);

/* Who sends this, whether the user's quota has something left, from which a request is taken, and
 * (topic not NULL) whether the user may produce there. 0, or the problem. */
uint16_t access_check(struct conn *conn, const struct http1_request *head,
                      const struct http1_slice *topic);
/* The name in the certificate that a client has shown, where that says who it is. False: it says
 * nothing, or there is none. */
bool access_certificate(const struct conn *conn, struct http1_slice *name);
/* Whether the user may still produce there, now that the body has come, which may take hours: asked
 * where another table has been heard since. 0, or the problem. */
uint16_t access_again(struct conn *conn, const struct http1_slice *topic);
/* The connection has ended, and is its user's no more. */
void access_forget(struct conn *conn);
/* Whether whoever was just looked at makes no topic by a produce: its topics are counted. */
bool access_known_topics(const struct conn *conn);
/* So many bytes more, of a body that is read or answered. Of whoever asked last on a connection:
 * what a proxy sends for several users on one is charged to them roughly. */
void access_charge(struct conn *conn, uint64_t bytes);
/* The user's number, of whoever has this connection and was not refused as nobody's. */
uint32_t access_user(const struct conn *conn);
/* Whom the line about a refusal tells; NO_USER with problems where nobody has looked yet who asks,
 * or nobody is known. */
uint32_t access_refused(const struct conn *conn, uint16_t problem);
/* Seconds until the quota has something left, from 1; of whoever was refused for it. */
uint32_t access_wait(const struct conn *conn);
/* An id that a client has chosen, as it is spelt inside: no other user's is the same, whatever they
 * choose. Left as it is where nobody has to show who asks. False: it can not be done. */
bool access_own(const struct conn *conn, const char *name, size_t len, uint8_t *id, size_t id_len);

#endif
