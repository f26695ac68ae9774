/* guest: a connection of a client, whatever it speaks: what those who admit, shed and drain keep
 * for each. What they ask of it is in its struct protocol, which says `clients`. */
#ifndef BARCO_GUEST_H
#define BARCO_GUEST_H

#include "core/core.h"

/* The first thing in the structure of each such protocol, so that conn->protocol->clients is all
 * that has to be known. */
struct guest {
    struct conn conn;
    uint8_t address; /* its class, of ADDRESS_CLASSES */
    bool refuser; /* its requests were refused one after the other, and none was good since */
    int32_t refused; /* requests, since it last yielded */
    struct guest *next_yielded, **prev_yielded; /* prev NULL: it has not */
    struct guest *next_held;
    uint32_t held; /* bytes; only while some are shed */
};

static inline bool is_guest(const struct conn *conn) { return conn->protocol->clients; }

static inline struct guest *guest_of(const struct conn *conn) { return (struct guest *)conn; }

#endif
