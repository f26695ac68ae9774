/* Numbers in decimal, by hand: sprintf costs more than the rest of a small answer. */
#ifndef BARCO_DECIMAL_H
#define BARCO_DECIMAL_H

#include <stdint.h>

#define DECIMAL_MAX 20 /* digits of the largest number */

/* Behind its last digit. */
static inline char *put_u64(char *at, uint64_t value)
{
    char digits[DECIMAL_MAX];
    int n = 0;
    do
        digits[n++] = (char)('0' + value % 10);
    while ((value /= 10) != 0);
    while (n > 0)
        *at++ = digits[--n];
    return at;
}

#endif
