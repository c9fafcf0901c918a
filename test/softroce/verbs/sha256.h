/* SHA-256 (FIPS 180-4) of a block of memory. */
#ifndef ROCAST_SHA256_H
#define ROCAST_SHA256_H

#include <stddef.h>

#define SHA256_HEX_BYTES 65 /* 64 digits and a NUL */

void sha256_hex(const void *data, size_t bytes, char hex[SHA256_HEX_BYTES]);

#endif
