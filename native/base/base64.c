#include "base/base64.h"

int64_t base64_write(uint8_t *text, size_t len)
{
    uint8_t *out = text;
    if (len % 4 != 0)
        return -1;
    size_t digits = len;
    while (digits > 0 && len - digits < 2 && text[digits - 1] == '=')
        digits--;
    uint32_t bits = 0;
    unsigned held = 0;
    for (size_t i = 0; i < digits; i++) {
        const int digit = base64_digit((char)text[i]);
        if (digit < 0)
            return -1;
        bits = bits << 6 | (uint32_t)digit;
        held += 6;
        if (held >= 8) {
            held -= 8;
            *out++ = (uint8_t)(bits >> held);
        }
    }
    /* What the last digit says beyond the last byte is nothing. */
    return (bits & ((1u << held) - 1)) == 0 ? out - text : -1;
}
