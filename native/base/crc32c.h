/* CRC-32C (Castagnoli, reflected 0x82F63B78, initial and final inversion). */
#ifndef BARCO_CRC32C_H
#define BARCO_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of p[0,len) after bytes whose checksum is seed (0 first), so calls chain. Uses
 * three interleaved SSE4.2 streams joined by a carry-less multiplication where the processor has
 * both; crc32c_portable() otherwise. */
uint32_t crc32c(uint32_t seed, const void *p, size_t len);

/* The checksum by tables of 8 x 256 words, for any processor. */
uint32_t crc32c_portable(uint32_t seed, const void *p, size_t len);

#endif
