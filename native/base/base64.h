/* base64: the digits of RFC 4648, 4, and texts of them with their padding; other readers have
 * padding and lengths of their own. */
#ifndef BARCO_BASE64_H
#define BARCO_BASE64_H

#include <stddef.h>
#include <stdint.h>

/* What a digit stands for, 0 to 63; -1: it is none. */
static inline int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Writes the bytes that a text with its padding stands for in place of it. How many, or -1: it is
 * none. */
int64_t base64_write(uint8_t *text, size_t len);

#endif
