/* Which bytes may be spliced into a JSON document as they are. */
#ifndef BARCO_JSON_H
#define BARCO_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_DEPTH_MAX 512u   /* Deeper values are not spliced: consumers' parsers recurse. */
#define JSON_NUMBER_MAX 1024u /* Nor longer numbers: Python's refuses them, and all with them. */

/* RFC 8259 text: strict grammar, valid UTF-8, paired surrogate escapes, one value with optional
 * white space around it, within the two limits above. Iterative. */
bool json_valid(const uint8_t *p, size_t len);

/* Well-formed UTF-8 (no over-long forms, no surrogates, at most U+10FFFF). */
bool utf8_valid(const uint8_t *p, size_t len);

/* How many bytes from p on need no care inside a JSON string: printable ASCII without quote and
 * backslash. May stop short of the first that does, never beyond it. */
size_t json_plain_run(const uint8_t *p, size_t len);

#endif
