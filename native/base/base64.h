/* base64: the digits of RFC 4648, 4; each reader has padding and lengths of its own. */
#ifndef BARCO_BASE64_H
#define BARCO_BASE64_H

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

#endif
