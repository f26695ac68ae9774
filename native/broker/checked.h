/* checked: produces of topics whose values somebody looks at before they are stored: the upper
 * layer has the body, and says how it goes on. Those of one connection wait there in their order.
 */
#ifndef BARCO_CHECKED_H
#define BARCO_CHECKED_H

#include "core/client.h"
#include "core/core.h"

/* What UPCALL_CHECK's status says of the body, above its content. */
#define CHECK_JSON 0x100u       /* it says that it is JSON */
#define CHECK_VALID_ONLY 0x200u /* of lines those that may be are stored */

/* A call as far as its head says, with its key and its headers behind it. */
struct withheld {
    struct produce produce;
    uint8_t bytes[];
};

/* Keeps the current request, whose body is complete, and tells the upper layer. 0, or the problem.
 */
uint16_t checked_withhold(struct conn *conn, struct slot *slot, const uint8_t *bytes, size_t len);
/* Produces these bytes, of the same kind, in place of what came. told: an upcall says how it ends,
 * and the answer is the upper layer's; else it is answered as any other. 0, or, told, the problem.
 */
uint16_t checked_produce(struct reactor *reactor, uint64_t id, bool told, const uint8_t *bytes,
                         size_t len);

#endif
