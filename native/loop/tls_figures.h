/* tls_figures: what is counted of connections by TLS. */
#ifndef BARCO_TLS_FIGURES_H
#define BARCO_TLS_FIGURES_H

#include <stdint.h>

struct tls_figures { /* since start */
    uint64_t handshakes, resumed;
    uint64_t failed, plain, late, refused; /* refused: there was no place in the line */
    uint64_t cut;                          /* ended without a word, after a handshake */
    uint64_t kernel;                       /* connections whose answers it seals */
    uint32_t under_way, in_line;           /* now */
    const char *reason;                    /* of the last that failed; NULL: none did */
};

#endif
