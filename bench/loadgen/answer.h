/* Reading answers: just enough of HTTP/1.1 and RESP to check every one of them. */
#ifndef LOADGEN_ANSWER_H
#define LOADGEN_ANSWER_H

#include <stddef.h>
#include <stdint.h>

struct answer {
    int status;         /* HTTP status; RESP: 200, or 500 for an error reply */
    uint64_t body_len;  /* bytes after the head */
    const char *cursor; /* value of the wanted header, if it was there */
    uint32_t cursor_len;
    int closes; /* the server will close the connection after this answer */
};

/* Length of the head (RESP: of the reply), 0 if it is not complete yet, -1 if it makes no sense.
 * wanted is a lower-case header name whose value is returned as the cursor; NULL for none. */
long http_answer(const char *p, size_t len, const char *wanted, struct answer *out);
long resp_answer(const char *p, size_t len, struct answer *out);

#endif
